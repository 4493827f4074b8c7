"""Special values, written into the draws that the inputs are made of."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from adjudge import arrays
from adjudge.inputs.philox import Stream
from adjudge.inputs.sampler import Sampler
from adjudge.program import Arguments

#: A tensor with no more distinct values than this is a label or a mask, not a measurement: a NaN in
#: it would break the task's own precondition.
CATEGORICAL = 3
#: Huge values lie this far below the largest finite one: the oracle looks at both, and what overflows
#: only at the latter hangs on the order of a sum or on the width of an operand.
HUGE_MARGIN = 64
#: Stream number of the choice of place, far from the numbers of the draws.
_PLACES = 0x5EC1A1

Draw = Callable[[Sampler], Arguments]
Floats = npt.NDArray[np.float64]


def with_special(draw: Draw, name: str, seed: int, distribution: str) -> Arguments | None:
    """The inputs that `draw` makes, with one special value placed; None if nothing can hold it.

    The value goes into one random draw, before the author's own code makes an input of it: a
    triangular matrix stays triangular, probabilities come from a softmax that met the value. Draw and
    place follow from the seed. Inputs made without a draw are written to as they are.
    """
    sampler = Sampler(seed, distribution)
    plain = draw(sampler)
    words = Stream(seed, _PLACES)
    if not sampler.float_draws:
        return _written(plain, name, words)
    first = int(words.integers(0, sampler.float_draws, 1)[0])
    placing = _Placing(name, _narrowest(plain), words)
    for turn in range(sampler.float_draws):
        wanted = (first + turn) % sampler.float_draws
        changed = draw(Sampler(seed, distribution, edit=(wanted, placing)))
        if _reached(plain, changed):
            return changed
    return None


@dataclass(frozen=True, slots=True)
class _Placing:
    """Writes the special value into one draw."""

    name: str
    #: Largest finite value that the inputs can hold.
    largest: float
    words: Stream

    def __call__(self, values: Floats) -> Floats:
        if not values.size or not values.ndim:
            return values
        value, place = self.name.split("@")
        number = {
            "nan": float("nan"),
            "+inf": float("inf"),
            "-inf": float("-inf"),
            "huge": self.largest / HUGE_MARGIN,
            "-zero": -0.0,
        }[value]
        flat = values.flatten()
        if place == "row":
            width = values.shape[-1]
            row = int(self.words.integers(0, flat.size // width, 1)[0])
            flat[row * width : (row + 1) * width] = number
        else:
            at = {"first": 0, "last": flat.size - 1}.get(place)
            flat[int(self.words.integers(0, flat.size, 1)[0]) if at is None else at] = number
        return flat.reshape(values.shape)


def _written(plain: Arguments, name: str, words: Stream) -> Arguments | None:
    fit = [(path, tensor) for path, tensor in plain.tensors() if _can_hold(tensor)]
    if not fit:
        return None
    chosen, tensor = fit[int(words.integers(0, len(fit), 1)[0])]
    largest = float(torch.finfo(tensor.dtype).max)
    placed = _Placing(name, largest, words)(tensor.double().numpy())
    changed = torch.from_numpy(placed).to(tensor.dtype)
    return plain.mapped(lambda path, item: changed if path == chosen else item)


def _reached(plain: Arguments, changed: Arguments) -> bool:
    """Whether inputs differ, and only such as can hold a special value."""
    pairs = zip(plain.tensors(), changed.tensors(), strict=True)
    moved = [before for (_, before), (_, after) in pairs if not _same_bits(before, after)]
    return bool(moved) and all(map(_can_hold, moved))


def _same_bits(one: torch.Tensor, other: torch.Tensor) -> bool:
    one, other = arrays.computable(one), arrays.computable(other)
    if one.is_floating_point() and other.is_floating_point():
        same = (one == other) & (one.signbit() == other.signbit()) | (one.isnan() & other.isnan())
        return bool(same.all())
    return torch.equal(one, other)


def _narrowest(arguments: Arguments) -> float:
    dtypes: list[Any] = [t.dtype for _, t in arguments.tensors() if t.is_floating_point()]
    return min((float(torch.finfo(d).max) for d in dtypes), default=1.0)


def _can_hold(tensor: torch.Tensor) -> bool:
    if not tensor.is_floating_point() or not tensor.numel() or not tensor.dim():
        return False
    some = arrays.computable(tensor)[:64]
    return tensor.numel() <= CATEGORICAL or int(some.unique().numel()) > CATEGORICAL  # type: ignore[no-untyped-call]
