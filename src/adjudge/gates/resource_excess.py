"""A call gives back what it took, and takes no more than is declared."""

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
    summary="takes more than there is, or than is declared",
    codes=("RES-02",),
    kind=Kind.EXACT,
    cost=2,
    scope="Memory that the candidate allocates, over thirteen equal calls. Where a contract declares "
    "chips, the registers, shared and tensor memory and spills of every kernel on each of them; where "
    "it declares memory, the peak of the ordinary run.",
    precondition="The candidate answers on the ordinary run.",
    postcondition="What a call allocates is free again when its outputs are; a cache is filled once. A "
    "kernel fits its chip, and spills no more than is allowed. A call's peak is within the declared "
    "multiple of the reference's.",
    tolerance="None: memory that grows at every one of the last calls is lost.",
    oracle="The candidate's own earlier calls; what the chip has; the reference's own peak.",
    measurement="Bytes of tensors alive after each call, outputs dropped, unreachable objects "
    "collected, and at the peak of the last. Kernels are compiled for the declared chips as they were "
    "launched.",
    signature="Bytes lost a call; what a kernel asks and the chip has not; spills; the peak beside the "
    "reference's.",
)

#: Fields of `task.Declared` that this gate judges by.
READS = ("resources",)

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
    leaking = [probe for probe, observation in runs.items() if lost(observation)]
    if leaking:
        probe = min(leaking, key=lambda p: (len(p.history), weight(p)))
        violation = _violation(probe, runs[probe])
        return violated(CONTRACT, evidence, violation, exact=True, probes=len(runs))
    declared = (_beyond_the_chip(evidence), _beyond_the_memory(evidence))
    beyond = next((found for found in declared if found is not None), None)
    if beyond is not None:
        return violated(CONTRACT, evidence, beyond, exact=True, probes=len(runs))
    if not runs:
        return not_applicable(CONTRACT, "no run of thirteen calls was made")
    peak = evidence.observations[evidence.scene.ordinary].peak_bytes
    return passed(
        CONTRACT,
        "no memory is lost over thirteen calls",
        probes=len(runs),
        notes=[
            f"an ordinary call allocates {peak:,} bytes",
            *(demand.words for demand in evidence.demands(_largest(evidence))),
        ],
    )


def _largest(evidence: Evidence) -> Probe:
    """The largest ordinary run that launched kernels: what they ask may grow with the sizes."""
    native = evidence.scene.native
    run = evidence.observations.get(native) if native is not None else None
    return native if native is not None and run and run.launches else evidence.scene.ordinary


def _beyond_the_chip(evidence: Evidence) -> Violation | None:
    probe = _largest(evidence)
    allowed = evidence.scene.task.declared.resources.spills
    for demand in evidence.demands(probe):
        spilled = demand.spills > allowed
        if not demand.excesses and not spilled:
            continue
        words = demand.excesses[0] if demand.excesses else f"spills {demand.spills} times"
        return Violation(
            probe=probe,
            signature="excess" if demand.excesses else "spills",
            message=f"{demand.kernel} {words}",
            where=f"{demand.kernel} on {demand.chip}",
            got=words,
            bound="what the chip has" if demand.excesses else f"{allowed} loads and stores",
            digests=evidence.observations[probe].digests,
        )
    return None


def _beyond_the_memory(evidence: Evidence) -> Violation | None:
    """The peak of the ordinary run against the declared multiple of the reference's."""
    times = evidence.scene.task.declared.resources.memory
    ordinary = evidence.scene.ordinary
    reference = evidence.reference_bytes(ordinary) if times else None
    run = evidence.observations[ordinary]
    if reference is None or run.peak_bytes <= times * reference:
        return None
    return Violation(
        probe=ordinary,
        signature="memory",
        message=f"a call takes {run.peak_bytes / max(reference, 1):.3g} times the reference's memory",
        expected=f"{reference:,} bytes",
        got=f"{run.peak_bytes:,} bytes",
        bound=f"{times:g} times the reference's",
        digests=run.digests,
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
