"""Subnormal numbers are kept or flushed as the contract says, and it is known which."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import numpy as np

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
    scope="Inputs and results below the smallest normal number. Where no contract declares a policy, "
    "what happens in float32 and bfloat16 is reported, since compilers flush there honestly, and a "
    "flush in float16 storage is a violation.",
    precondition="The reference keeps the subnormal result.",
    postcondition='A float16 result that is subnormal is not zero. Where the contract declares "keep", '
    'nor is one of any other dtype; where it declares "flush", it is zero; where it declares "either", '
    "both are right.",
    tolerance="None: two spacings above zero is not zero.",
    oracle="The reference in float64 and in its own dtype.",
    measurement="One run on subnormal inputs in the task's own dtype, and one in float16.",
    signature="A zero where the answer is a subnormal number, or the reverse.",
)

#: Fields of `task.Declared` that this gate judges by.
READS = ("subnormals",)

#: Outside of float16, only the loss of a result above this share of the least normal number is a
#: flush: it would take 2**22 roundings to half a spacing to lose it otherwise.
CLEARLY = 0.25
#: The least normal number of each dtype.
_LEAST_NORMAL = {"float32": 2.0**-126, "bfloat16": 2.0**-126, "float16": 2.0**-14}


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
    policy = evidence.scene.task.declared.subnormals
    seen, notes, failing = 0, [], []
    for probe, observation in evidence.observations.items():
        if not probe.distribution.startswith("subnormal") or not observation.answered:
            continue
        zero, total = evidence.flushed(probe)
        if not total:
            continue
        seen += 1
        half = probe.distribution == "subnormal-16"
        if policy == "flush":
            broken = _kept(observation)[0] > 0
        elif half:
            broken = zero > 0 and policy != "either" and state(evidence, probe) is State.BROKEN
        else:
            broken = policy == "keep" and evidence.flushed(probe, CLEARLY)[0] > 0
        if broken:
            failing.append(probe)
        elif not half:
            notes.append(f"{zero} of {total} subnormal results are flushed to zero")
    if failing:
        probe = min(failing, key=weight)
        observation = evidence.observations[probe]
        if policy == "flush":
            counts = _kept(observation)
        else:
            half = probe.distribution == "subnormal-16"
            counts = evidence.flushed(probe, 0.0 if half else CLEARLY)
        violation = _violation(observation, probe, *counts, flushed=policy != "flush")
        return violated(CONTRACT, evidence, violation, exact=True, probes=seen)
    if not seen:
        return not_applicable(CONTRACT, "no subnormal input leads to a subnormal result")
    return passed(CONTRACT, f"{seen} runs on subnormal inputs", probes=seen, notes=notes)


def _kept(observation: Observation) -> tuple[int, int]:
    """How many elements of the float outputs are subnormal, and how many there are."""
    kept = total = 0
    for output in observation.outputs:
        if output.dtype not in _LEAST_NORMAL:
            continue
        size = np.abs(output.data.astype(np.float64))
        kept += int(((size > 0) & (size < _LEAST_NORMAL[output.dtype])).sum())
        total += size.size
    return kept, total


def _violation(
    observation: Observation, probe: Probe, count: int, total: int, *, flushed: bool
) -> Violation:
    dtype = next((o.dtype for o in observation.outputs if o.dtype in _LEAST_NORMAL), "float16")
    return Violation(
        probe=probe,
        signature="flushed" if flushed else "kept",
        message=f"{count} of {total} subnormal {dtype} results are zero"
        if flushed
        else f"{count} of {total} {dtype} results are subnormal, where zero is declared",
        got="0" if flushed else "a subnormal number",
        bound="not zero" if flushed else "zero",
        affected=count,
        total=total,
        digests=observation.digests,
    )
