"""Guarded, poisoned memory for what the candidate allocates, and tensors over shared memory."""

from __future__ import annotations

import mmap
import weakref
from collections.abc import Callable, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from adjudge import arrays
from adjudge.observation import AccessFault
from adjudge.tally import Tally
from adjudge.worker.device_face import real_device
from adjudge.worker.protocol import ALIGN, DISPLACED, FILL_BYTES, GUARD


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


def span(
    block: torch.Tensor,
    start: int,
    nbytes: int,
    dtype: torch.dtype,
    released: Callable[[], object] | None = None,
) -> torch.Tensor:
    """A flat tensor over `nbytes` of a block of bytes, with a storage of its own that begins there: what
    lies around it is out of the reach of `as_strided`.

    Args:
        released: called when nothing refers to that storage any more.
    """
    device = real_device(block)
    # The storage holds on to what it was made from, and to nothing else.
    source: Any = block.numpy() if device.type == "cpu" else _Span(block, start, nbytes)
    if released is not None:
        weakref.finalize(source, released)
    if device.type == "cuda":
        return torch.as_tensor(source, device=device).view(dtype)
    count = nbytes // torch.empty(0, dtype=dtype).element_size()
    return torch.frombuffer(source, dtype=dtype, count=count, offset=start)


class _Span:
    """Bytes on a GPU, in the form in which array libraries hand them to each other."""

    def __init__(self, block: torch.Tensor, start: int, nbytes: int) -> None:
        self._block = block
        self.__cuda_array_interface__ = {
            "shape": (nbytes,),
            "typestr": "|u1",
            "data": (block.data_ptr() + start, False),
            "version": 3,
        }


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


#: Operations that allocate, fill, move or look, and compute nothing.
_MOVES = frozenset(
    "empty empty_strided empty_like new_empty new_empty_strided zeros zeros_like new_zeros ones "
    "ones_like new_ones full full_like fill_ zero_ view _unsafe_view reshape transpose t permute "
    "expand squeeze unsqueeze slice select split alias detach clone copy_ _to_copy as_strided "
    "contiguous is_pinned lift_fresh set_ resize_ _local_scalar_dense".split()
)


class GuardedAllocations(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Places every factory's memory between guard zones; poison where nothing is written."""

    def __init__(self, fill: str, guard: str, *, displaced: bool = False) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._displaced = DISPLACED if displaced else 0
        self._fill = FILL_BYTES[fill]
        self._guard = FILL_BYTES[guard]
        self._blocks: list[tuple[torch.Tensor, int, int]] = []
        self.tally = Tally()
        #: Operations that computed something, by name.
        self.library: dict[str, int] = {}

    @classmethod
    def ignore_compile_internals(cls) -> bool:
        """Lets `torch.compile` work: what it compiled allocates on the poisoned heap instead."""
        return True

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        kwargs = kwargs or {}
        out = func(*args, **kwargs)
        name = func._schema.name.removeprefix("aten::")
        if name not in _MOVES:
            self.library[name] = self.library.get(name, 0) + 1
        if func not in _FACTORIES or type(out) is not torch.Tensor:
            self.tally.made(out, (*args, *kwargs.values()))
            return out
        if out.layout != torch.strided or out.device.type == "meta" or not out.numel():
            return out
        return self._guarded(out, _FACTORIES[func])

    def _guarded(self, out: torch.Tensor, value: int | None) -> torch.Tensor:
        span_elements = sum((n - 1) * s for n, s in zip(out.shape, out.stride(), strict=True)) + 1
        nbytes = span_elements * out.element_size()
        size = self._displaced + nbytes + 2 * GUARD + ALIGN
        try:
            block = torch.full((size,), self._guard, dtype=torch.uint8, device=real_device(out))
        except RuntimeError:
            self.tally.made(out, ())
            return out
        first = self._displaced + GUARD
        start = first + (-(block.data_ptr() + first)) % ALIGN
        block[start : start + nbytes] = self._fill
        self._blocks.append((block, start, nbytes))
        self.tally.hold(nbytes)
        flat = span(block, start, nbytes, out.dtype, lambda: self.tally.release(nbytes))
        tensor = flat.as_strided(out.shape, out.stride())
        if value is not None:
            tensor.fill_(value)
        return tensor

    def faults(self) -> list[AccessFault]:
        """Allocations whose guard zones changed."""
        found: list[AccessFault] = []
        changed = []
        by_device: dict[torch.device, list[torch.Tensor]] = {}
        for block, start, nbytes in self._blocks:
            end = start + nbytes
            around = (block[start - GUARD : start], block[end : end + GUARD])
            changed.append(torch.stack(around) != self._guard)
            by_device.setdefault(real_device(block), []).append(changed[-1])
        # One answer for all blocks of a device: a GPU is waited for at each that is asked for.
        if not any(bool(torch.stack(all_there).any()) for all_there in by_device.values()):
            return found
        for number, (before, after) in enumerate(changed):
            name = f"allocation {number}"
            if bool(after.any()):
                offset = int(after.nonzero()[0, 0])
                found.append(AccessFault(kind="guard", tensor=name, offset=offset))
            elif bool(before.any()):
                offset = int(before.nonzero()[-1, 0]) - GUARD
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
