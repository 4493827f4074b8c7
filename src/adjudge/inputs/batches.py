"""Parts of a batch: which rows of the inputs are kept, and where they stand in the outputs.

A row is an element of axis 0 of the task's first input; the other inputs are cut along every axis
that moves with it.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from adjudge.task import Symbol, Task

#: How a report names each level.
WORDS = {
    "first": "the first row alone",
    "last": "the last row alone",
    "half": "half of the batch",
}


def symbol_of(task: Task) -> Symbol | None:
    """The dimension symbol that counts the rows of a batch; None where that number is fixed, or is
    an argument of the constructor too."""
    if not task.inputs:
        return None
    rows = (task.inputs[0].name, 0)
    return next((s for s in task.symbols if rows in s.axes and not s.init_args), None)


def span(level: str, rows: int) -> tuple[int, int] | None:
    """(start, length) of the part of a batch; None where the batch has no such part of its own."""
    if level == "half":
        return (0, rows // 2) if rows >= 4 else None
    if rows < 2:
        return None
    return (0, 1) if level == "first" else (rows - 1, 1)


def rows_of(
    whole: npt.NDArray[Any], shape: tuple[int, ...], level: str, rows: int
) -> npt.NDArray[Any] | None:
    """What an output of the whole batch holds of the part whose output has that shape.

    None where the two shapes do not differ in one axis of `rows` elements: then the output has no
    rows, or its rows are not those of the batch.
    """
    found = span(level, rows)
    if found is None or len(shape) != whole.ndim:
        return None
    start, length = found
    axes = [axis for axis, size in enumerate(whole.shape) if size != shape[axis]]
    if len(axes) != 1 or whole.shape[axes[0]] != rows or shape[axes[0]] != length:
        return None
    taken: npt.NDArray[Any] = np.take(whole, range(start, start + length), axis=axes[0])
    return taken
