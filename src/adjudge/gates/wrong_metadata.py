"""Number, device, dtype and shape of the outputs."""

from __future__ import annotations

from collections.abc import Iterable

from adjudge.contract import Contract, Finding, Kind, Violation
from adjudge.gates.protocol import Evidence, Scene
from adjudge.gates.reading import baseline_unusable, passed, violated, weight
from adjudge.probe import Probe

CONTRACT = Contract(
    identifier="wrong-metadata",
    summary="returns outputs of another number, shape, dtype or device",
    codes=("RES-01",),
    kind=Kind.EXACT,
    cost=0,
    scope="Every output of every run that any gate asks for; gradients are `wrong-gradient`'s.",
    precondition="The reference answers.",
    postcondition="As many outputs as the reference returns, nested alike, each of its dtype and "
    "shape, on the device of the inputs; strides are recorded and not judged.",
    tolerance="None.",
    oracle="The native reference's outputs.",
    measurement="Structure, dtype, shape and device of each output, on every run.",
    signature="The output, what was expected of it and what it is.",
)


def plan(scene: Scene) -> Iterable[Probe]:
    probes = [scene.ordinary]
    if scene.native is not None:
        probes.append(scene.native)
    return probes


def decide(evidence: Evidence) -> Finding:
    answered = [p for p, o in evidence.observations.items() if o.answered and p.cotangent == "none"]
    for probe in sorted(answered, key=weight):
        violation = _violation(evidence, probe)
        if violation is not None:
            return violated(CONTRACT, evidence, violation, exact=True, probes=len(answered))
    unusable = baseline_unusable(CONTRACT, evidence, evidence.scene.ordinary)
    if unusable is not None:
        return unusable
    return passed(CONTRACT, f"as the reference over {len(answered)} runs", probes=len(answered))


def _violation(evidence: Evidence, probe: Probe) -> Violation | None:
    comparison = evidence.compare(probe)
    if comparison.outcome == "metadata":
        return Violation(
            probe=probe,
            signature="metadata",
            message=comparison.reason,
            where=comparison.where,
            expected=comparison.expected,
            got=comparison.got,
            bound="equality",
            digests=evidence.observations[probe].digests,
        )
    devices = {o.device for o in evidence.observations[probe].outputs if not o.scalar}
    foreign = devices - {evidence.device}
    if foreign:
        return Violation(
            probe=probe,
            signature="device",
            message="an output lies on another device than the inputs",
            expected=evidence.device,
            got=", ".join(sorted(foreign)),
            bound="equality",
        )
    return None
