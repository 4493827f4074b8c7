"""Arguments at another rank, and whether the reference gives them the meaning that they had."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from adjudge.inputs import ranks
from adjudge.inputs.batches import symbol_of
from adjudge.oracle import Oracle
from adjudge.probe import Probe
from adjudge.program import Arguments, OutsideDomain
from adjudge.task import Task

if TYPE_CHECKING:
    from adjudge.judge.cases import CaseBuilder


def at_rank(task: Task, arguments: Arguments, rank: int) -> Arguments:
    """The arguments with the leading dimensions of the first input, and of those that share them,
    split or merged.

    Raises:
        OutsideDomain: there is nothing to split or merge, or an input has the rows elsewhere.
    """
    old, new = _leading(arguments, rank)
    symbol = symbol_of(task)
    shapes = {path: tuple(t.shape) for path, t in arguments.tensors()}
    moving = {path for path, shape in shapes.items() if shape[: len(old)] == old}
    if symbol is not None:
        for path, axis in symbol.axes:
            if axis or path not in moving:
                raise OutsideDomain(f"{path} has the rows of the batch elsewhere")
        if len(old) == 1:
            # One size may be that of a weight by chance; the symbol knows. Several hardly are.
            moving = {path for path, _ in symbol.axes}

    def reshape(path: str, value: Any) -> Any:
        return value.reshape(*new, *shapes[path][len(old) :]) if path in moving else value

    return arguments.mapped(reshape)


def strangeness(builder: CaseBuilder, probe: Probe, alike: float) -> str:
    """What the reference, in float64, answers otherwise at the probe's rank than for the same rows at
    its own; "" if nothing. Answers may differ by `alike` of the largest.

    Raises:
        OutsideDomain: it does not answer at this rank.
    """
    own = builder.arguments(probe.without(["rank"]))
    old, new = _leading(own, probe.rank)
    flat, ranked = (
        Oracle(builder.make(probe, given), given, generic=True).exact
        for given in (own, builder.arguments(probe))
    )
    if len(flat) != len(ranked):
        return "the reference has another number of outputs at this rank"
    for one, other in zip(flat, ranked, strict=True):
        shape = tuple(one.data.shape)
        if shape[: len(old)] == old:
            shape = (*new, *shape[len(old) :])
        truth = one.data.reshape(shape)
        finite = np.abs(truth[np.isfinite(truth)])
        slack = alike * float(finite.max(initial=0.0))
        if other.data.shape != shape or not np.allclose(
            other.data, truth, rtol=alike, atol=slack, equal_nan=True
        ):
            return "the reference does not take the leading dimensions for a batch"
    return ""


def _leading(arguments: Arguments, rank: int) -> tuple[ranks.Shape, ranks.Shape]:
    """The leading sizes of the first input at its own rank, and at the other one.

    Raises:
        OutsideDomain: it has that rank, or no dimension.
    """
    tensors = arguments.tensors()
    found = ranks.leading(tuple(tensors[0][1].shape), rank) if tensors else None
    if found is None:
        raise OutsideDomain(f"the first input cannot be brought to rank {rank}")
    return found
