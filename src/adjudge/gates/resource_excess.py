"""A call gives back what it took."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from itertools import pairwise

from adjudge.contract import Contract, Finding, Kind, Violation
from adjudge.gates.protocol import Evidence, Scene
from adjudge.gates.reading import baseline_unusable, not_applicable, passed, violated, weight
from adjudge.observation import Observation
from adjudge.probe import Probe

CONTRACT = Contract(
    identifier="resource-excess",
    summary="takes more memory with every call",
    codes=("RES-02",),
    kind=Kind.EXACT,
    cost=2,
    scope="Memory that the candidate allocates, over thirteen equal calls.",
    precondition="The candidate answers on the ordinary run.",
    postcondition="What a call allocates is free again when its outputs are; a cache is filled once.",
    tolerance="None: memory that grows at every one of the last calls is lost.",
    oracle="The candidate's own earlier calls.",
    measurement="Bytes alive after each call, outputs dropped, unreachable objects collected.",
    signature="Bytes lost a call. Registers, spills and shared memory against a chip's limits are noted "
    "with `--chip`, where a compiler is present, and convict nobody: no task declares its chip.",
)

CALLS = 12
#: The last calls, at each of which memory must have grown: earlier outputs that are kept alive on
#: purpose, and caches, have settled by then.
SETTLED = 6


def plan(scene: Scene) -> Iterable[Probe]:
    return [scene.ordinary, replace(scene.ordinary, history=("same",) * CALLS)]


def decide(evidence: Evidence) -> Finding:
    unusable = baseline_unusable(CONTRACT, evidence, evidence.scene.ordinary)
    if unusable is not None:
        return unusable
    runs = {
        probe: observation
        for probe, observation in evidence.observations.items()
        if len(probe.history) >= CALLS and set(probe.history) == {"same"} and observation.answered
    }
    if not runs:
        return not_applicable(CONTRACT, "no run of thirteen calls was made")
    leaking = [probe for probe, observation in runs.items() if lost(observation)]
    if leaking:
        probe = min(leaking, key=lambda p: (len(p.history), weight(p)))
        violation = _violation(probe, runs[probe])
        return violated(CONTRACT, evidence, violation, exact=True, probes=len(runs))
    peak = evidence.observations[evidence.scene.ordinary].peak_bytes
    return passed(
        CONTRACT,
        "no memory is lost over thirteen calls",
        probes=len(runs),
        notes=[f"an ordinary call allocates {peak:,} bytes"],
    )


def lost(observation: Observation) -> int:
    """Bytes lost at each of the last calls, 0 if one of them lost none."""
    alive = observation.live_bytes[-SETTLED:]
    grown = [after - before for before, after in pairwise(alive)]
    return min(grown) if len(alive) == SETTLED and min(grown) > 0 else 0


def _violation(probe: Probe, observation: Observation) -> Violation:
    return Violation(
        probe=probe,
        signature="leak",
        message=f"each call keeps {lost(observation):,} bytes for good",
        got=f"{observation.live_bytes[-1]:,} bytes after {len(observation.live_bytes)} calls",
        bound="no growth",
        digests=observation.digests,
    )
