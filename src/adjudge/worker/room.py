"""The device's memory among several judges: a run that found too little of it is made again alone."""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Iterator


class Room:
    """Two lock files: one is held by every run, the other by whoever waits for the first.

    Without the second, runs that keep coming would keep out for ever the one that wants to be alone.

    Args:
        path: of the first; "" where nobody else uses the device.
    """

    def __init__(self, path: str = "") -> None:
        self._path = path

    @property
    def others(self) -> bool:
        """Whether somebody else may use the device."""
        return bool(self._path)

    @contextlib.contextmanager
    def shared(self) -> Iterator[None]:
        """Among others."""
        if not self._path:
            yield
            return
        with contextlib.ExitStack() as stack:
            with _held(f"{self._path}.door", fcntl.LOCK_EX):
                stack.enter_context(_held(self._path, fcntl.LOCK_SH))
            yield

    @contextlib.contextmanager
    def alone(self) -> Iterator[None]:
        """When the runs in progress have ended, and before any other begins."""
        if not self._path:
            yield
            return
        with _held(f"{self._path}.door", fcntl.LOCK_EX), _held(self._path, fcntl.LOCK_EX):
            yield


@contextlib.contextmanager
def _held(path: str, how: int) -> Iterator[None]:
    # Opened anew each time: forks that share a descriptor would share its lock.
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(fd, how)
        yield
    finally:
        os.close(fd)
