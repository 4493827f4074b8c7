"""Stable where a stable algorithm exists."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from adjudge.contract import Contract, Finding, Kind
from adjudge.gates.protocol import Evidence, Scene
from adjudge.gates.reading import decide_values, not_applicable
from adjudge.inputs.levels import CANCELLING
from adjudge.probe import Probe

CONTRACT = Contract(
    identifier="cancellation",
    summary="loses its digits where large parts cancel",
    codes=("C-PRC-02",),
    kind=Kind.DERIVED,
    cost=2,
    scope="Tasks with float inputs. Extended.",
    precondition="The reference answers.",
    postcondition="Values with a large common part (a mean of a thousand spreads, a pattern of 1, "
    "eps, -1, -eps) are answered as precisely as by the reference's own algorithm.",
    tolerance="The error envelope of the reference's algorithm on this very input: where the "
    "reference is unstable itself, the envelope is as wide, and nobody is convicted.",
    oracle="The reference in float64.",
    measurement="One run for each pattern.",
    signature="An element beyond its bound: a variance from a difference of squares, a logsumexp "
    "without its shift.",
)


def plan(scene: Scene) -> Iterable[Probe]:
    if not any(spec.dtype.startswith(("float", "bfloat")) for spec in scene.task.inputs):
        return []
    return [scene.ordinary, *(replace(scene.ordinary, distribution=d) for d in CANCELLING)]


def decide(evidence: Evidence) -> Finding:
    planned = [probe for probe in plan(evidence.scene) if probe.factors]
    if not planned:
        return not_applicable(CONTRACT, "the task has no float input")
    return decide_values(CONTRACT, evidence, planned)
