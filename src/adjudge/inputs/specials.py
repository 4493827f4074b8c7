"""Special values, written into drawn inputs."""

from __future__ import annotations

from typing import Any

import torch

from adjudge.inputs.philox import Stream
from adjudge.program import Arguments

Placed = tuple[tuple[str, tuple[int, ...]], ...]

#: A tensor with no more distinct values than this is a label or a mask, not a measurement: a NaN in
#: it would break the task's own precondition.
CATEGORICAL = 3
#: Huge values lie this far below the largest finite one: the oracle looks at both, and what overflows
#: only at the latter hangs on the order of a sum or on the width of an operand.
HUGE_MARGIN = 64
#: Stream number of the choice of place, far from the numbers of the draws.
_PLACES = 0x5EC1A1


def apply_special(arguments: Arguments, name: str, seed: int) -> tuple[Arguments, Placed]:
    """The arguments with one special value placed, and where (path, index; a row has no last index).

    The tensor and the place follow from the seed. Integer tensors and categorical ones are left
    alone; with nothing to write to, the arguments come back unchanged and nothing is placed.
    """
    fit = [(path, tensor) for path, tensor in arguments.tensors() if _can_hold(tensor)]
    if not fit:
        return arguments, ()
    words = Stream(seed, _PLACES)
    path, tensor = fit[int(words.integers(0, len(fit), 1)[0])]
    value, place = name.split("@")
    changed = tensor.clone()
    index = _write(changed, value, place, words)

    def swap(where: str, item: Any) -> Any:
        return changed if where == path else item

    return arguments.mapped(swap), ((path, index),)


def _can_hold(tensor: torch.Tensor) -> bool:
    if not tensor.is_floating_point() or not tensor.numel() or not tensor.dim():
        return False
    return tensor.numel() <= CATEGORICAL or int(tensor[:64].unique().numel()) > CATEGORICAL  # type: ignore[no-untyped-call]


def _write(tensor: torch.Tensor, value: str, place: str, words: Stream) -> tuple[int, ...]:
    number = {
        "nan": float("nan"),
        "+inf": float("inf"),
        "-inf": float("-inf"),
        "huge": torch.finfo(tensor.dtype).max / HUGE_MARGIN,
        "-zero": -0.0,
    }[value]
    flat = tensor.view(-1)
    if place == "row":
        width = tensor.shape[-1]
        row = int(words.integers(0, flat.numel() // width, 1)[0])
        flat[row * width : (row + 1) * width] = number
        return tuple(int(i) for i in torch.unravel_index(torch.tensor(row), tensor.shape[:-1]))
    position = {"first": 0, "last": flat.numel() - 1}.get(place)
    if position is None:
        position = int(words.integers(0, flat.numel(), 1)[0])
    flat[position] = number
    return tuple(int(i) for i in torch.unravel_index(torch.tensor(position), tensor.shape))
