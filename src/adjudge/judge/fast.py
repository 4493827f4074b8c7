"""The first violation that counts, gate by gate, for whoever wants to know only whether there is one."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from adjudge.contract import Finding, Outcome
from adjudge.gates.protocol import Gate
from adjudge.judge import shrink
from adjudge.judge.docket import Docket

#: Why a gate was not asked; a budget's words begin so too.
LEFT_OUT = "budget: another gate's violation came first"


def first_violation(
    docket: Docket,
    gates: Iterable[Gate],
    confirmed: Callable[[Docket, Gate], Finding],
    accepted: Callable[[Finding], bool],
) -> tuple[Finding, ...]:
    """The first violation that is not accepted, made small, behind those before it that are; or nothing,
    with the probes of every gate run.

    Gates are asked in the order of their cost, and each runs its own probes only.
    """
    passed_over: list[Finding] = []
    for g in sorted(gates, key=lambda g: g.CONTRACT.cost):
        docket.run(g.plan(docket.scene))
        finding = confirmed(docket, g)
        if finding.outcome is not Outcome.VIOLATION:
            continue
        finding = shrink.settle(docket, g, finding, frozenset(docket.observations))
        passed_over.append(finding)
        if not accepted(finding):
            return tuple(passed_over)
    return ()


def left_out(g: Gate) -> Finding:
    """The finding of a gate that was not asked."""
    return Finding(gate=g.CONTRACT.identifier, outcome=Outcome.NOT_APPLICABLE, reason=LEFT_OUT)
