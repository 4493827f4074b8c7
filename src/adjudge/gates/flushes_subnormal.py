"""Subnormal numbers are kept or flushed as the contract says, and it is known which."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from adjudge.contract import Contract, Finding, Kind, Violation
from adjudge.gates.protocol import Evidence, Scene
from adjudge.gates.reading import (
    State,
    baseline_unusable,
    not_applicable,
    passed,
    state,
    violated,
    weight,
)
from adjudge.observation import Observation
from adjudge.probe import Probe

CONTRACT = Contract(
    identifier="flushes-subnormal",
    summary="turns small float16 numbers into zero",
    codes=("EXC-02", "C-PRC-03"),
    kind=Kind.EXACT,
    scope="Inputs and results below the smallest normal number. What happens in float32 and bfloat16 "
    "is reported; compilers flush there honestly. In float16 storage it is a violation.",
    precondition="The reference keeps the subnormal result.",
    postcondition="A float16 result that is subnormal is not zero.",
    tolerance="None: two spacings above zero is not zero.",
    oracle="The reference in float64 and in its own dtype.",
    measurement="One run on subnormal inputs in the task's own dtype, and one in float16.",
    signature="A zero where the answer is a subnormal float16.",
)


def plan(scene: Scene) -> Iterable[Probe]:
    kinds = {spec.dtype for spec in scene.task.inputs}
    probes = [scene.ordinary]
    if kinds & {"float32", "bfloat16"}:
        probes.append(replace(scene.ordinary, distribution="subnormal"))
        probes.append(replace(scene.ordinary, distribution="subnormal-16", dtype="float16"))
    elif "float16" in kinds:
        probes.append(replace(scene.ordinary, distribution="subnormal-16"))
    return probes


def decide(evidence: Evidence) -> Finding:
    unusable = baseline_unusable(CONTRACT, evidence, evidence.scene.ordinary)
    if unusable is not None:
        return unusable
    seen, notes, failing = 0, [], []
    for probe, observation in evidence.observations.items():
        if not probe.distribution.startswith("subnormal") or not observation.answered:
            continue
        zero, total = evidence.flushed(probe)
        if not total:
            continue
        seen += 1
        half = probe.distribution == "subnormal-16"
        if zero and half and state(evidence, probe) is State.BROKEN:
            failing.append(probe)
        elif not half:
            notes.append(f"{zero} of {total} subnormal results are flushed to zero")
    if failing:
        probe = min(failing, key=weight)
        violation = _violation(evidence.observations[probe], probe, *evidence.flushed(probe))
        return violated(CONTRACT, evidence, violation, exact=True, probes=seen)
    if not seen:
        return not_applicable(CONTRACT, "no subnormal input leads to a subnormal result")
    return passed(CONTRACT, f"{seen} runs on subnormal inputs", probes=seen, notes=notes)


def _violation(observation: Observation, probe: Probe, zero: int, total: int) -> Violation:
    return Violation(
        probe=probe,
        signature="flushed",
        message=f"{zero} of {total} subnormal float16 results are zero",
        got="0",
        bound="not zero",
        affected=zero,
        total=total,
        digests=observation.digests,
    )
