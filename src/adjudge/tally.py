"""Bytes of tensor memory alive while a program runs: the candidate's in its process, the reference's in
ours."""

from __future__ import annotations

import weakref
from collections.abc import Iterable, Iterator
from typing import Any

import torch

from adjudge.dispatch import Uncompiled


class Tally:
    """Counts storages from when they are made until nothing refers to them any more."""

    def __init__(self) -> None:
        self.live_bytes = self.peak_bytes = 0

    def hold(self, nbytes: int) -> None:
        self.live_bytes += nbytes
        self.peak_bytes = max(self.peak_bytes, self.live_bytes)

    def release(self, nbytes: int) -> None:
        self.live_bytes -= nbytes

    def made(self, out: Any, given: Iterable[Any]) -> None:
        """An operation gave `out` for `given`: storages that are new are held."""
        known = {tensor.untyped_storage()._cdata for tensor in _tensors(given)}
        for tensor in _tensors((out,)):
            storage = tensor.untyped_storage()
            nbytes = storage.nbytes()
            if storage._cdata in known or not nbytes:
                continue
            known.add(storage._cdata)
            self.hold(nbytes)
            weakref.finalize(storage, self.release, nbytes)


class Counting(Uncompiled):  # type: ignore[no-untyped-call]
    """Tallies what every operation allocates."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.tally = Tally()

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        kwargs = kwargs or {}
        out = func(*args, **kwargs)
        self.tally.made(out, (*args, *kwargs.values()))
        return out


def _tensors(values: Iterable[Any]) -> Iterator[torch.Tensor]:
    """Strided tensors among the values, and in lists and tuples among them."""
    for value in values:
        if isinstance(value, torch.Tensor):
            if value.layout == torch.strided and value.device.type != "meta":
                yield value
        elif isinstance(value, (list, tuple)):
            yield from _tensors(value)
