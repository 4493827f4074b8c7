"""The candidate computes its answer and leaves everything else alone."""

from __future__ import annotations

from collections.abc import Iterable

from adjudge.contract import Contract, Finding, Kind, Violation
from adjudge.gates.protocol import Evidence, Scene
from adjudge.gates.reading import ESCAPES, baseline_unusable, passed, violated, weight
from adjudge.observation import Observation
from adjudge.probe import Probe

CONTRACT = Contract(
    identifier="tampers",
    summary="interferes with torch, the timers, the machine or the judge",
    kind=Kind.EXACT,
    cost=0,
    scope="Everything the candidate does while it is loaded, constructed and called.",
    precondition="None.",
    postcondition="torch, triton, the timers and the builtins are what they were; no thread is "
    "left running; no file, socket or process is touched; every call returns, with tensors that "
    "already hold their values.",
    tolerance="None.",
    oracle="A snapshot taken before the candidate is loaded, and what the sandbox refused.",
    measurement="Observed during every run. What the candidate's process reports about itself is a "
    "hint; a process that ended without an answer is seen from outside.",
    signature="What was touched; an early exit; a reply that breaks the protocol.",
)


def plan(scene: Scene) -> Iterable[Probe]:
    return [scene.ordinary]


def decide(evidence: Evidence) -> Finding:
    caught = {probe: words for probe, o in evidence.observations.items() if (words := _offence(o))}
    if caught:
        probe = min(caught, key=weight)
        signature, message = caught[probe]
        violation = Violation(probe=probe, signature=signature, message=message)
        return violated(
            CONTRACT, evidence, violation, exact=True, probes=len(evidence.observations)
        )
    unusable = baseline_unusable(CONTRACT, evidence, evidence.scene.ordinary)
    if unusable is not None:
        return unusable
    count = len(evidence.observations)
    return passed(CONTRACT, f"nothing touched over {count} runs", probes=count)


def _offence(observation: Observation) -> tuple[str, str] | None:
    if observation.tampering:
        return "tampering", "; ".join(observation.tampering[:3])
    if observation.status in ESCAPES:
        return observation.status.value, f"ended without an answer: {observation.ending}"
    return None
