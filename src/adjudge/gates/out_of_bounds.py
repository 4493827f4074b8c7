"""No access outside the declared tensors."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from adjudge.contract import Contract, Finding, Kind, Violation
from adjudge.gates.protocol import Evidence, Scene
from adjudge.gates.reading import decide_bits, violated, weight
from adjudge.observation import AccessFault
from adjudge.probe import Probe

CONTRACT = Contract(
    identifier="out-of-bounds",
    summary="reads or writes memory outside its tensors",
    codes=("C-EXC-02",),
    kind=Kind.EXACT,
    cost=0,
    scope="Every load, store and atomic of the candidate's kernels; every input and allocation.",
    precondition="None: no input makes an access outside the declared tensors right.",
    postcondition="Every address lies within the storage of a live tensor.",
    tolerance="None.",
    oracle="The extents of the live tensors; the bytes of the guard zones.",
    measurement="The interpreter checks each address of each run that any gate asks for. Beside "
    "it every input and every allocation sits between guard zones: a changed guard is a write, and "
    "an output that depends on the guard's content is a read.",
    signature="The kernel, its source line, the tensor and the distance in bytes; or an output "
    "that changes with what lies around the inputs.",
)


def plan(scene: Scene) -> Iterable[Probe]:
    ordinary = scene.ordinary
    return [ordinary, replace(ordinary, guard="nan"), replace(ordinary, guard="finite")]


def decide(evidence: Evidence) -> Finding:
    scene = evidence.scene
    faulty = [p for p, o in evidence.observations.items() if o.faults]
    if faulty:
        declared = [p for p in faulty if scene.is_declared(p)]
        probe = min(declared or faulty, key=weight)
        violation = _violation(probe, evidence.observations[probe].faults)
        return violated(
            CONTRACT, evidence, violation, exact=True, probes=len(evidence.observations)
        )
    return decide_bits(
        CONTRACT,
        evidence,
        [(scene.ordinary, probe) for probe in plan(scene) if probe != scene.ordinary],
        signature="reads-around",
        message="the answer depends on what lies around the inputs",
    )


def _violation(probe: Probe, faults: tuple[AccessFault, ...]) -> Violation:
    fault = faults[0]
    verb = {"load": "reads", "guard": "writes"}.get(fault.kind, "writes")
    if fault.offset > 0:
        where = f"{fault.offset} bytes past the end"
    else:
        where = f"{-fault.offset} bytes before the start" if fault.offset else "right past the end"
    place = f"{fault.kernel}, line {fault.line}" if fault.kernel else "outside any Triton kernel"
    return Violation(
        probe=probe,
        signature="access",
        message=f"{verb} {where} of {fault.tensor} ({fault.kind})",
        where=place,
        bound="the tensor's own storage",
        affected=fault.lanes,
    )
