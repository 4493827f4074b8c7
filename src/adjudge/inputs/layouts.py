"""How a tensor lies in memory: strides, offset and size of the storage around its elements."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np
import numpy.typing as npt

from adjudge import arrays

#: Elements before the first one in "offset": a multiple of every vector width in use.
_OFFSET = 64
#: Extra columns in "padded".
_PAD = 3
#: "far" places rows so that offsets pass 2**31 elements; more virtual memory than this is refused.
_FAR_BYTES = 24 << 30


@dataclass(frozen=True, slots=True)
class LayoutPlan:
    #: In elements.
    strides: tuple[int, ...]
    offset: int
    storage_elements: int
    #: True if the storage holds elements that are not the tensor's: they are poisoned.
    gaps: bool = False
    #: True if the storage is virtual and must not be filled.
    sparse: bool = False
    #: "none", "expanded" (axis 0 repeats) or "overlap" (rows are windows of one sequence).
    ties: str = "none"


def plan(
    shape: tuple[int, ...], itemsize: int, layout: str, leaf: int, integer: bool, seed: int
) -> LayoutPlan | None:
    """The plan for one tensor, or None where the layout leaves it contiguous.

    Integer and boolean tensors take part only in "side-sliced", float tensors in all the others.
    `leaf` and `seed` are there for layouts that choose among tensors.
    """
    if layout == "contiguous" or not shape or integer != (layout == "side-sliced"):
        return None
    build = _PLANS.get("sliced" if layout == "side-sliced" else layout)
    return build(shape, itemsize) if build is not None else None


def contiguous(shape: tuple[int, ...]) -> tuple[int, ...]:
    strides, step = [], 1
    for size in reversed(shape):
        strides.append(step)
        step *= max(1, size)
    return tuple(reversed(strides))


def _transposed(shape: tuple[int, ...], itemsize: int) -> LayoutPlan | None:
    if len(shape) < 2:
        return None
    swapped = (*shape[:-2], shape[-1], shape[-2])
    inner = contiguous(swapped)
    return LayoutPlan((*inner[:-2], inner[-1], inner[-2]), 0, prod(shape))


def _sliced(shape: tuple[int, ...], itemsize: int) -> LayoutPlan:
    wide = (*shape[:-1], 2 * shape[-1])
    outer = contiguous(wide)
    return LayoutPlan((*outer[:-1], 2), 0, prod(wide), gaps=True)


def _padded(shape: tuple[int, ...], itemsize: int) -> LayoutPlan | None:
    if len(shape) < 2:
        return None
    wide = (*shape[:-1], shape[-1] + _PAD)
    return LayoutPlan(contiguous(wide), 0, prod(wide), gaps=True)


def _shifted(offset: int) -> Any:
    def build(shape: tuple[int, ...], itemsize: int) -> LayoutPlan:
        return LayoutPlan(contiguous(shape), offset, prod(shape) + offset, gaps=True)

    return build


def _expanded(shape: tuple[int, ...], itemsize: int) -> LayoutPlan | None:
    if len(shape) < 2:
        return None
    return LayoutPlan((0, *contiguous(shape[1:])), 0, prod(shape[1:]), ties="expanded")


def _overlapping(shape: tuple[int, ...], itemsize: int) -> LayoutPlan | None:
    """Row i starts half a row after row i-1, as the windows of an unfolded signal do."""
    if len(shape) != 2 or shape[1] < 2 or not shape[0]:
        return None
    step = shape[1] // 2
    return LayoutPlan((step, 1), 0, step * (shape[0] - 1) + shape[1], ties="overlap")


def _channels_last(shape: tuple[int, ...], itemsize: int) -> LayoutPlan | None:
    if len(shape) not in (4, 5):
        return None
    spatial = (shape[0], *shape[2:], shape[1])
    inner = contiguous(spatial)
    return LayoutPlan((inner[0], inner[-1], *inner[1:-1]), 0, prod(shape))


def _far(shape: tuple[int, ...], itemsize: int) -> LayoutPlan | None:
    if len(shape) < 2 or shape[0] < 2 or not prod(shape):
        return None
    inner = contiguous(shape[1:])
    step = (1 << 31) // (shape[0] - 1) + prod(shape[1:])
    elements = step * (shape[0] - 1) + prod(shape[1:])
    if elements * itemsize > _FAR_BYTES:
        return None
    return LayoutPlan((step, *inner), 0, elements, gaps=True, sparse=True)


_PLANS = {
    "transposed": _transposed,
    "sliced": _sliced,
    "padded": _padded,
    "offset": _shifted(_OFFSET),
    "misaligned": _shifted(1),
    "expanded": _expanded,
    "overlapping": _overlapping,
    "channels-last": _channels_last,
    "far": _far,
}


def tie(values: npt.NDArray[Any], plan: LayoutPlan) -> npt.NDArray[Any]:
    """The values as they read back once elements that share memory hold one value."""
    if plan.ties == "none" or not values.size:
        return values
    storage = np.zeros(plan.storage_elements, dtype=values.dtype)
    view = strided(storage, values.shape, plan)
    for row in range(values.shape[0]):
        view[row] = values[row]
    return np.ascontiguousarray(view)


def strided(
    storage: npt.NDArray[Any], shape: tuple[int, ...], plan: LayoutPlan
) -> npt.NDArray[Any]:
    """The tensor's elements as a writable view of a flat storage."""
    return arrays.strided(storage[plan.offset :], shape, plan.strides)
