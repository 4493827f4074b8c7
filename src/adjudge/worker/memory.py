"""Guarded, poisoned memory for what the candidate allocates, and tensors over shared memory."""

from __future__ import annotations

import mmap
from collections.abc import Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from adjudge import arrays
from adjudge.observation import AccessFault
from adjudge.worker.protocol import ALIGN, FILL_BYTES, GUARD


def tensor_at(memory: mmap.mmap, spec: Mapping[str, Any]) -> torch.Tensor:
    """The tensor that `spec` describes in shared memory; its storage spans its own bytes only."""
    dtype = arrays.torch_dtype(spec["dtype"])
    shape, strides = tuple(spec["shape"]), tuple(spec["strides"])
    itemsize = torch.empty(0, dtype=dtype).element_size()
    count = spec["nbytes"] // itemsize
    if not count:
        return torch.empty_strided(shape, strides, dtype=dtype)
    flat = torch.frombuffer(memory, dtype=dtype, count=count, offset=spec["start"])
    return flat.as_strided(shape, strides, spec["offset"])


_FACTORIES = {
    torch.ops.aten.empty.memory_format: None,
    torch.ops.aten.empty_strided.default: None,
    torch.ops.aten.empty_like.default: None,
    torch.ops.aten.new_empty.default: None,
    torch.ops.aten.new_empty_strided.default: None,
    torch.ops.aten.zeros.default: 0,
    torch.ops.aten.zeros_like.default: 0,
    torch.ops.aten.new_zeros.default: 0,
    torch.ops.aten.ones.default: 1,
    torch.ops.aten.ones_like.default: 1,
    torch.ops.aten.new_ones.default: 1,
}


class GuardedAllocations(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Places every factory's memory between guard zones; poison where nothing is written."""

    def __init__(self, fill: str, guard: str) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._fill = FILL_BYTES[fill]
        self._guard = FILL_BYTES[guard]
        self._blocks: list[tuple[np.ndarray[Any, np.dtype[np.uint8]], int, int]] = []
        self.peak_bytes = 0

    @classmethod
    def ignore_compile_internals(cls) -> bool:
        """Lets `torch.compile` work: what it compiled allocates on the poisoned heap instead."""
        return True

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        kwargs = kwargs or {}
        out = func(*args, **kwargs)
        if func not in _FACTORIES or type(out) is not torch.Tensor:
            return out
        if out.layout != torch.strided or out.device.type == "meta" or not out.numel():
            return out
        return self._guarded(out, _FACTORIES[func])

    def _guarded(self, out: torch.Tensor, value: int | None) -> torch.Tensor:
        try:
            itemsize = out.element_size()
            span = sum((n - 1) * s for n, s in zip(out.shape, out.stride(), strict=True)) + 1
            nbytes = span * itemsize
            block = np.full(nbytes + 2 * GUARD + ALIGN, self._guard, dtype=np.uint8)
        except (MemoryError, ValueError):
            return out
        start = GUARD + (-(block.ctypes.data + GUARD)) % ALIGN
        block[start : start + nbytes] = self._fill
        self._blocks.append((block, start, nbytes))
        self.peak_bytes += nbytes
        flat = torch.frombuffer(block, dtype=out.dtype, count=span, offset=start)
        tensor = flat.as_strided(out.shape, out.stride())
        if value is not None:
            tensor.fill_(value)
        return tensor

    def faults(self) -> list[AccessFault]:
        """Allocations whose guard zones changed."""
        found = []
        for number, (block, start, nbytes) in enumerate(self._blocks):
            end = start + nbytes
            after = block[end : end + GUARD] != self._guard
            before = block[start - GUARD : start] != self._guard
            name = f"allocation {number}"
            if after.any():
                offset = int(np.flatnonzero(after)[0])
                found.append(AccessFault(kind="guard", tensor=name, offset=offset))
            elif before.any():
                offset = int(np.flatnonzero(before)[-1]) - GUARD
                found.append(AccessFault(kind="guard", tensor=name, offset=offset))
        return found


@contextmanager
def poisoned_heap(fill: str) -> Any:
    """glibc fills what malloc hands out with the fill's byte: it reaches `torch.empty` in C++."""
    import ctypes

    libc = ctypes.CDLL(None)
    perturb = -6  # M_PERTURB, malloc.h
    if FILL_BYTES[fill]:
        # malloc stores the complement of the byte that is set.
        libc.mallopt(perturb, FILL_BYTES[fill] ^ 0xFF)
    try:
        yield
    finally:
        libc.mallopt(perturb, 0)
