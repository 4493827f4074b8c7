"""The work is done by the candidate's own kernel."""

from __future__ import annotations

from collections.abc import Iterable

from adjudge.contract import Contract, Finding, Kind, Violation
from adjudge.gates.protocol import Evidence, Scene
from adjudge.gates.reading import baseline_unusable, not_applicable, passed, violated, weight
from adjudge.observation import Observation
from adjudge.probe import Probe

CONTRACT = Contract(
    identifier="bypasses-kernel",
    summary="answers without launching a kernel of its own",
    kind=Kind.EXACT,
    cost=0,
    scope="Every run that answers. A violation only where the task demands a kernel; elsewhere what "
    "was launched and which library operations were called is reported.",
    precondition="The candidate answers on the ordinary run.",
    postcondition="Each answer with elements comes of at least one kernel launched in that call.",
    tolerance="None.",
    oracle="The launches that the runner saw.",
    measurement="Kernels launched, and operations of torch called, in each run.",
    signature="An answer without a launch: a fallback, a table of answers, the reference's own code.",
)


def plan(scene: Scene) -> Iterable[Probe]:
    return [scene.ordinary, *([scene.native] if scene.native is not None else [])]


def decide(evidence: Evidence) -> Finding:
    scene = evidence.scene
    unusable = baseline_unusable(CONTRACT, evidence, scene.ordinary)
    if unusable is not None:
        return unusable
    # Where nobody declares training, a candidate may leave the graph to torch.
    training = scene.task.declared.training
    answered = {
        p: o
        for p, o in evidence.observations.items()
        if o.answered and _has_elements(o) and (training or p.cotangent == "none")
    }
    without = [probe for probe, observation in answered.items() if not observation.launches]
    if without and scene.task.declared.kernel:
        probe = min(without, key=weight)
        violation = _violation(probe, answered[probe], len(without), len(answered))
        return violated(CONTRACT, evidence, violation, exact=True, probes=len(answered))
    notes = _notes(answered, without)
    if not scene.task.declared.kernel:
        reason = f"the task demands no kernel; {'; '.join(notes)}" if notes else "none is demanded"
        return not_applicable(CONTRACT, reason)
    return passed(CONTRACT, "every answer came of a kernel", probes=len(answered), notes=notes)


def _has_elements(observation: Observation) -> bool:
    return any(output.data.size for output in observation.outputs)


def _notes(answered: dict[Probe, Observation], without: list[Probe]) -> list[str]:
    notes = []
    if without and len(without) < len(answered):
        notes.append(f"{len(without)} of {len(answered)} answers came without a launch")
    elif without:
        notes.append("no kernel was launched")
    library = sorted({name for o in answered.values() for name in o.library})
    if library:
        notes.append(f"operations of torch called: {', '.join(library[:8])}")
    return notes


def _violation(probe: Probe, observation: Observation, count: int, total: int) -> Violation:
    called = ", ".join(observation.library[:4]) or "no operation of torch"
    return Violation(
        probe=probe,
        signature="bypass",
        message=f"answers without launching a kernel ({called})",
        affected=count,
        total=total,
        bound="a launch in every call",
        digests=observation.digests,
    )
