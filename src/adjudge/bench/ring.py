"""Inputs that are new in every timed call, at next to no cost.

A few sets of the task's inputs, the *bases*, lie in the worker from the start. As the clock starts, the
judge tells a *pad*: random bits for each call of the span. A call's float inputs are a base's with the
pad's bits flipped into their mantissas: every value stays in its binade, so that it is as good a draw as
the one it came from, and nobody could compute with it before. Answers kept for inputs seen before, or
prepared for inputs foreseen, are then wrong ones.
"""

from __future__ import annotations

import secrets
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from adjudge import arrays
from adjudge.program import Arguments

#: 64-bit words of pad that each call has; longer tensors repeat them.
WIDTH = 256
#: Mantissa bits of the numbers in one 64-bit word, by dtype.
MASKS = {
    "float64": 0x000F_FFFF_FFFF_FFFF,
    "float32": 0x007F_FFFF_007F_FFFF,
    "float16": 0x03FF_03FF_03FF_03FF,
    "bfloat16": 0x007F_007F_007F_007F,
}
#: Part of a tensor's values that may be zero: uniform draws hold a few, which get the least value beside
#: them. More of them mean something (a mask), and the tensor stays as it is.
_FEW_ZEROS = 1e-3

Words = npt.NDArray[np.int64]


def pads(secret: bytes, count: int) -> Words:
    """The pads of a span's calls, one row each."""
    raw = np.random.Generator(np.random.Philox(key=int.from_bytes(secret, "little"))).bytes(
        8 * count * WIDTH
    )
    return np.frombuffer(raw, dtype="<i8").reshape(count, WIDTH).astype(np.int64)


def new_secret() -> bytes:
    """The key of one span's pads, 128 bits."""
    return secrets.token_bytes(16)


@dataclass(frozen=True, slots=True)
class Ring:
    """The bases of one task, and which of their tensors are varied."""

    bases: tuple[Arguments, ...]
    #: Paths of the call's arguments.
    varied: frozenset[str]

    @property
    def nbytes(self) -> int:
        """Bytes of the inputs of one call."""
        return sum(t.numel() * t.element_size() for _, t in self.bases[0].tensors())

    def plain(self) -> Ring:
        """The same without variation, for references that do not bear it."""
        return Ring(self.bases, frozenset())

    def arguments(self, secret: bytes, count: int, call: int) -> Arguments:
        """What one call of a span of `count` was given."""
        pad = pads(secret, count)[call]

        def flip(path: str, value: Any) -> Any:
            return flipped(value, pad) if path in self.varied else value

        return self.bases[call % len(self.bases)].mapped(flip)


def ring_of(bases: list[Arguments]) -> Ring:
    """A ring of the given draws; where they differ from each other, they may be varied."""
    varied = set()
    for path, tensor in bases[0].tensors():
        others = [dict(base.tensors())[path] for base in bases[1:]]
        drawn = any(not torch.equal(tensor, other) for other in others)
        if drawn and all(map(_bears_variation, [tensor, *others])):
            varied.add(path)
    mended = [
        base.mapped(lambda path, value: _without_zeros(value) if path in varied else value)
        for base in bases
    ]
    return Ring(tuple(mended), frozenset(varied))


def _bears_variation(tensor: torch.Tensor) -> bool:
    """Whether other mantissas are as good: floats that are no integers, no mask and not special."""
    if arrays.dtype_name(tensor.dtype) not in MASKS or not tensor.numel():
        return False
    least = torch.finfo(tensor.dtype).smallest_normal
    zeros = int((tensor == 0).sum())
    small = int((tensor.abs() < least).sum()) - zeros
    usual = bool(torch.isfinite(tensor).all()) and not small
    return usual and zeros <= _FEW_ZEROS * tensor.numel() and bool((tensor != tensor.round()).any())


def _without_zeros(tensor: torch.Tensor) -> torch.Tensor:
    if not bool((tensor == 0).any()):
        return tensor
    least = tensor[tensor != 0].abs().min()
    return torch.where(tensor == 0, least, tensor)


def flipped(tensor: torch.Tensor, pad: Words) -> torch.Tensor:
    """A copy with the pad's bits flipped into the mantissas, as a worker makes it."""
    name = arrays.dtype_name(tensor.dtype)
    raw = np.ascontiguousarray(arrays.to_numpy(tensor)).reshape(-1).view(np.uint8)
    words = np.zeros(-(-raw.size // (8 * WIDTH)) * WIDTH, dtype=np.int64)
    words.view(np.uint8)[: raw.size] = raw
    words = (words.reshape(-1, WIDTH) ^ (pad & MASKS[name])).reshape(-1)
    values = words.view(np.uint8)[: raw.size].view(arrays.numpy_dtype(name))
    return arrays.from_numpy(values.reshape(tuple(tensor.shape)), name)


def bit_sum(raw: bytes) -> int:
    """What seals an answer: the sum of its 64-bit words, or of its bytes where they make up no whole
    words, modulo 2**64, as a signed number. Small to tell, and no smaller to compute than the answer."""
    kind = "<i8" if len(raw) % 8 == 0 else "u1"
    return int(np.frombuffer(raw, dtype=kind).sum(dtype=np.int64))
