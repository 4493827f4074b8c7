"""A task's inputs at another rank: the same rows, their leading dimensions split or merged.

The rank is that of the first input. Inputs that share its leading dimensions move with it; the others
(weights, tables, masks of one row) stay as they are.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise
from math import prod

from adjudge.inputs.batches import symbol_of
from adjudge.inputs.levels import RANKS
from adjudge.probe import Probe
from adjudge.task import Task, merged

Shape = tuple[int, ...]


def at_other_ranks(task: Task, ordinary: Probe, native: Probe | None = None) -> Iterator[Probe]:
    """The ordinary run at each rank that is not the task's own, none where it has no rows; and the
    native run, where there is one, at each that is declared.

    The number of rows, where it may vary, is one that splits into parts of which no two neighbours are
    alike: else a kernel that takes one for the other would be right.
    """
    if not task.inputs or not task.inputs[0].shape:
        return
    own, symbol = len(task.inputs[0].shape), symbol_of(task)
    for rank in RANKS:
        probe = replace(ordinary, rank=rank)
        if rank > own and symbol is not None:
            rows = _rows(probe.size(symbol.name), rank - own + 1)
            probe = probe.at(merged(dict(probe.sizes), **{symbol.name: rows}))
        if rank == own:
            continue
        yield probe
        if native is not None and rank in task.declared.ranks:
            yield replace(native, rank=rank)


def leading(shape: Shape, rank: int) -> tuple[Shape, Shape] | None:
    """The leading sizes of a shape and what takes their place at the rank; None where nothing would
    change."""
    if not shape or rank < 1 or rank == len(shape):
        return None
    if rank > len(shape):
        return shape[:1], split(shape[0], rank - len(shape) + 1)
    merging = len(shape) - rank + 1
    return shape[:merging], (prod(shape[:merging]),)


def split(rows: int, parts: int) -> Shape:
    """`parts` sizes whose product is `rows`, as few of them one, and as few neighbours alike, as can
    be; then as near to each other as can be."""
    return max(_factorings(rows, parts), key=lambda sizes: (*_told_apart(sizes), -max(sizes)))


def _told_apart(sizes: Shape) -> tuple[int, int]:
    return sum(n > 1 for n in sizes), sum(a != b for a, b in pairwise(sizes))


def _factorings(rows: int, parts: int) -> Iterator[Shape]:
    """In ascending order."""
    if parts == 1:
        yield (rows,)
    elif not rows:
        yield (0,) * parts
    else:
        for size in (n for n in range(1, rows + 1) if rows % n == 0):
            yield from ((size, *rest) for rest in _factorings(rows // size, parts - 1))


def _rows(held: int, parts: int) -> int:
    """The least number of rows, `held` if that is one, that splits into parts told apart."""
    sizes = split(held, parts)
    apart = held > 0 and _told_apart(sizes) == (parts, parts - 1)
    return held if apart else prod((2, 3)[i % 2] for i in range(parts))
