"""Every element is written on every call."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from adjudge.contract import Contract, Finding, Kind
from adjudge.gates.protocol import Evidence, Scene
from adjudge.gates.reading import decide_bits
from adjudge.probe import Probe

CONTRACT = Contract(
    identifier="stale-output",
    summary="lets what was in memory before show in the answer",
    kind=Kind.EXACT,
    cost=0,
    scope="All memory the candidate allocates without filling it, and lanes that a masked load "
    "leaves undefined.",
    precondition="The candidate answers on the ordinary run.",
    postcondition="The answer does not depend on what fresh memory held.",
    tolerance="None: bit equality.",
    oracle="The candidate's own run over zeroed memory.",
    measurement="The ordinary run over memory filled with NaN, and over memory filled with a large "
    "finite value: NaN * 0 shows what 1e30 * 0 hides, and a maximum hides NaN.",
    signature="An output element that changes with the fill.",
)

POISONS = ("nan", "finite")


def plan(scene: Scene) -> Iterable[Probe]:
    return [replace(scene.ordinary, fill=fill) for fill in ("zero", *POISONS)]


def decide(evidence: Evidence) -> Finding:
    # Crossed probes bear on this gate too: an empty group shows only at the shape that has one.
    poisoned = [p for p in evidence.observations if p.fill in POISONS]
    return decide_bits(
        CONTRACT,
        evidence,
        [(probe.without(["fill"]), probe) for probe in poisoned],
        signature="stale",
        message="what fresh memory held before shows in the answer",
    )
