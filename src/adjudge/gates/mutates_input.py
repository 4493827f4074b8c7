"""Inputs and parameters are bit-identical afterwards."""

from __future__ import annotations

from collections.abc import Iterable

from adjudge.contract import Contract, Finding, Kind, Violation
from adjudge.gates.protocol import Evidence, Scene
from adjudge.gates.reading import baseline_unusable, passed, violated, weight
from adjudge.observation import COTANGENTS, FINAL, Observation
from adjudge.probe import Probe

CONTRACT = Contract(
    identifier="mutates-input",
    summary="writes over its inputs or parameters",
    kind=Kind.EXACT,
    cost=0,
    scope="Every input tensor, every parameter and buffer, on every run that any gate asks for.",
    precondition="The task does not declare the argument in-place, and the reference itself leaves "
    "it alone. What the reference writes is compared as an answer is, by the gates of values.",
    postcondition="Inputs, parameters and buffers hold the same bytes after the call as before.",
    tolerance="None: byte equality.",
    oracle="The bytes that the judge put there.",
    measurement="Inputs lie in memory that the judge shares with the worker and reads back itself.",
    signature="The name of the argument or parameter that changed.",
)


def plan(scene: Scene) -> Iterable[Probe]:
    return [scene.ordinary]


def decide(evidence: Evidence) -> Finding:
    scene = evidence.scene
    allowed = {*scene.task.declared.in_place, *scene.discovery.reference_writes}
    # A candidate may nest its state otherwise: bn.running_mean for layers.0.running_mean.
    nested = scene.discovery.weights == "by seed"
    endings = {_last(name) for name in scene.discovery.reference_writes} if nested else set()
    changed = {
        probe: names
        for probe, observation in evidence.observations.items()
        if (names := _changed(observation, allowed, endings))
    }
    if changed:
        probe = min(changed, key=weight)
        names = changed[probe]
        violation = Violation(
            probe=probe,
            signature="mutated",
            message=f"{', '.join(names)} changed during the call",
            where=names[0],
            bound="byte equality",
            digests=evidence.observations[probe].digests,
        )
        return violated(
            CONTRACT, evidence, violation, exact=True, probes=len(evidence.observations)
        )
    unusable = baseline_unusable(CONTRACT, evidence, scene.ordinary)
    if unusable is not None:
        return unusable
    count = sum(o.answered for o in evidence.observations.values())
    return passed(CONTRACT, f"unchanged over {count} runs", probes=count, notes=_unseen(evidence))


def _unseen(evidence: Evidence) -> Iterable[str]:
    """What the reference writes and no run of the candidate shows."""
    runs = evidence.observations.values()
    seen = {t.path.removeprefix(FINAL) for o in runs for t in (*o.finals, *o.state)}
    unseen = [name for name in evidence.scene.discovery.reference_writes if name not in seen]
    if unseen:
        yield f"{', '.join(unseen[:5])}: written by the reference; the candidate has no such state"


def _changed(observation: Observation, allowed: set[str], endings: set[str]) -> list[str]:
    if not observation.answered:
        return []
    state = [name for name in observation.mutated_parameters if _last(name) not in endings]
    # A backward pass may put a gradient where its cotangent was; `wrong-gradient` says so.
    given = [name for name in observation.mutated_inputs if not name.startswith(COTANGENTS)]
    return [name for name in (*given, *state) if name not in allowed]


def _last(name: str) -> str:
    return name.rpartition(".")[2]
