"""A power of two in a homogeneous input is a power of two in the answer."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import numpy as np

from adjudge.contract import Contract, Finding, Kind
from adjudge.gates.protocol import Evidence, Scene
from adjudge.gates.reading import (
    State,
    baseline_unusable,
    not_applicable,
    passed,
    state,
    value_violation,
    violated,
    weight,
)
from adjudge.inputs.levels import SCALES
from adjudge.observation import Observation
from adjudge.probe import Probe

CONTRACT = Contract(
    identifier="scale-variant",
    summary="does not scale as its reference does",
    codes=("C-PRC-04",),
    kind=Kind.EXACT,
    scope="Inputs in which the reference is homogeneous. Extended.",
    precondition="The float64 answer follows a power of the factor; the candidate answers on the "
    "ordinary run.",
    postcondition="Multiplying such an input by 2**k multiplies the answer by the same power of "
    "2**k, short of overflow and underflow.",
    tolerance="None: bit equality after unscaling, or else the envelope there (an honest power by "
    "logarithms is not bit-homogeneous).",
    oracle="The candidate's own ordinary run, scaled.",
    measurement="Each of the first inputs multiplied by 2**24 and by 2**-24.",
    signature="An element that is neither the scaled one nor within the envelope: an absolute "
    "epsilon or clamp, a constant that does not scale, an intermediate that overflows.",
)

#: Inputs that are scaled, one at a time.
INPUTS = 3


def plan(scene: Scene) -> Iterable[Probe]:
    kinds = [spec.dtype for spec in scene.task.inputs]
    floats = sum(kind in ("float32", "float64", "bfloat16") for kind in kinds)
    return [
        scene.ordinary,
        *(
            replace(scene.ordinary, special=f"scaled:{power}@{which}")
            for which in range(min(floats, INPUTS))
            for power in SCALES
        ),
    ]


def decide(evidence: Evidence) -> Finding:
    unusable = baseline_unusable(CONTRACT, evidence, evidence.scene.ordinary)
    if unusable is not None:
        return unusable
    exact, within, failing = 0, 0, []
    for probe, observation in evidence.observations.items():
        plain = probe.without(["special"])
        baseline = evidence.observations.get(plain)
        if not probe.special.startswith("scaled:") or baseline is None or not baseline.answered:
            continue
        if state(evidence, plain) is not State.CLEAN:
            continue
        degree = evidence.homogeneity(plain, probe)
        if degree is None:
            continue
        power = degree * int(probe.special.removeprefix("scaled:").partition("@")[0])
        if observation.answered and _scaled_bits(baseline, observation, power):
            exact += 1
        elif state(evidence, probe) is State.CLEAN:
            within += 1
        elif state(evidence, probe) is State.BROKEN:
            failing.append(probe)
    if failing:
        violation, _ = value_violation(evidence, min(failing, key=weight))
        violation = replace(violation, signature="scale")
        return violated(CONTRACT, evidence, violation, exact=True, probes=len(failing))
    if not exact + within:
        return not_applicable(CONTRACT, "the reference is homogeneous in no input")
    notes = [f"{within} runs judged by the envelope: their bits do not scale"] if within else []
    reason = f"{exact + within} scaled runs give the scaled answer"
    return passed(CONTRACT, reason, probes=exact + within, notes=notes)


def _scaled_bits(plain: Observation, scaled: Observation, power: int) -> bool:
    pairs = zip(plain.outputs, scaled.outputs, strict=False)
    with np.errstate(all="ignore"):
        return len(plain.outputs) == len(scaled.outputs) and all(
            a.data.shape == b.data.shape
            and np.array_equal(np.ldexp(a.data.astype(np.float64), power), b.data, equal_nan=True)
            for a, b in pairs
        )
