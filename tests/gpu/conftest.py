"""Tests that need an NVIDIA GPU. Elsewhere they skip, and say why.

Several processes may run them at once (`-n`): a test that takes times has the device to itself then."""

from __future__ import annotations

import fcntl
from collections.abc import Iterator

import pytest

from adjudge.errors import UsageError
from adjudge.worker.client import Zygote
from adjudge.worker.launch import hide_device


@pytest.fixture(autouse=True)
def turn(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[None]:
    """Beside other tests; alone where the test is marked `alone`."""
    how = fcntl.LOCK_EX if request.node.get_closest_marker("alone") else fcntl.LOCK_SH
    # The folder above is that of all processes of a run.
    with (tmp_path_factory.getbasetemp().parent / "device.lock").open("w") as lock:
        fcntl.flock(lock, how)
        yield


@pytest.fixture(scope="session")
def gpu() -> Iterator[Zygote]:
    try:
        running = Zygote.start(runner="cuda")
    except UsageError as error:
        pytest.skip(str(error).splitlines()[0])
    hide_device()
    with running:
        yield running
