"""Each dtype that the candidate accepts meets its own envelope."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from adjudge.contract import Contract, Finding, Kind
from adjudge.gates.drifting import drifting
from adjudge.gates.protocol import Evidence, Scene
from adjudge.gates.reading import decide_values, not_applicable
from adjudge.inputs.levels import DTYPES
from adjudge.probe import Probe

CONTRACT = Contract(
    identifier="dtype-regime",
    summary="is wrong in a precision that it accepts",
    codes=("PRC-01",),
    kind=Kind.DERIVED,
    cost=2,
    scope="float32, float16 and bfloat16 in place of the task's own float dtype, inputs and "
    "parameters alike. Extended, unless the task declares the dtype.",
    precondition="The reference answers in that dtype, and the candidate does not refuse it.",
    postcondition="The answer has the reference's dtype, and lies within the envelope of that dtype: "
    "half-precision storage, sums in float32.",
    tolerance="The error envelope of the reference in that dtype.",
    oracle="The reference in float64 on the same half-precision inputs.",
    measurement="The ordinary run and one of large values in each other dtype, and in each of half "
    "precision one with which a sum kept in that dtype drifts.",
    signature="An element beyond its bound; a float16 answer in which every element is a bfloat16; an "
    "answer in another dtype; a crash.",
)

#: Fields of `task.Declared` that this gate judges by.
READS = ("dtypes",)


def plan(scene: Scene) -> Iterable[Probe]:
    native = {spec.dtype for spec in scene.task.inputs}
    if not native & set(DTYPES):
        return []
    ordinary = scene.ordinary
    planned = [ordinary]
    for name in (dtype for dtype in DTYPES if dtype not in native):
        for distribution in ("declared", "normal-1000"):
            planned.append(replace(ordinary, dtype=name, distribution=distribution))
        planned += drifting(scene, name, native=False)
    return planned


def decide(evidence: Evidence) -> Finding:
    planned = [probe for probe in plan(evidence.scene) if probe.dtype != "native"]
    if not planned:
        return not_applicable(CONTRACT, "the task has no float input")
    return decide_values(CONTRACT, evidence, planned)
