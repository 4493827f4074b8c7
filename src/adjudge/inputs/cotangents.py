"""Cotangents: what the backward pass is given for each output, and how it lies in memory."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np
import numpy.typing as npt

from adjudge.inputs import layouts
from adjudge.inputs.philox import Stream
from adjudge.inputs.values import floats

#: Numbers the streams of cotangents apart from those of inputs, of which no task draws as many.
_FIRST_STREAM = 1 << 20
#: Kinds whose values are those of "random": only where they lie, or how often they are used, differs.
SAME_VALUES = frozenset({"sliced", "transposed", "twice"})


def values(kind: str, shape: tuple[int, ...], seed: int, leaf: int) -> npt.NDArray[np.float64]:
    """Float64 values of the cotangent for the `leaf`-th output, of `shape`; `kind` is a name of
    `levels.COTANGENTS`."""
    stream = Stream(seed, _FIRST_STREAM + leaf)
    if kind == "zero":
        return np.zeros(shape)
    if kind == "expanded":
        return np.ones(shape)
    drawn = floats(stream, shape, "normal", "declared")
    if kind != "one-hot" or not drawn.size:
        return drawn
    # The largest of independent draws stands anywhere with the same chance.
    hot = np.zeros(drawn.size)
    hot[int(np.argmax(drawn))] = 1.0
    return hot.reshape(shape)


def plan(kind: str, shape: tuple[int, ...], itemsize: int) -> layouts.LayoutPlan | None:
    """How a cotangent of that kind lies in memory; None where that is densely."""
    if kind == "expanded" and shape and 0 not in shape:
        return layouts.LayoutPlan((0,) * len(shape), 0, 1, ties="expanded")
    if kind in ("sliced", "transposed"):
        return layouts.plan(shape, itemsize, kind, 0, False, 0)
    return None


def has_layout(kind: str) -> bool:
    """Whether the kind is about where the cotangent lies: it then needs an output with an axis."""
    return kind in ("expanded", "sliced", "transposed")


def image_fields(plan: layouts.LayoutPlan | None, shape: tuple[int, ...]) -> dict[str, Any]:
    """The fields of a `TensorImage` that say where the elements lie."""
    if plan is None:
        plan = layouts.LayoutPlan(layouts.contiguous(shape), 0, prod(shape))
    return {
        "strides": plan.strides,
        "offset": plan.offset,
        "storage_elements": plan.storage_elements,
        "gaps": plan.gaps,
    }
