"""The right answer on ordinary and adversarial distributions."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

from adjudge.contract import Contract, Finding, Kind, Outcome
from adjudge.gates.protocol import Evidence, Scene
from adjudge.gates.reading import decide_values
from adjudge.inputs.levels import DISTRIBUTIONS
from adjudge.probe import Probe

CONTRACT = Contract(
    identifier="wrong-value",
    summary="gives another answer than the reference",
    codes=("CMP-01", "C-CMP-01"),
    kind=Kind.DERIVED,
    cost=1,
    scope="Every candidate, every output element, and every element of an input, parameter or buffer "
    "that the reference writes (in-place arguments, running statistics), at the native point and at "
    "a small base point; the author's distribution is declared, the others are extended.",
    precondition="The reference answers, and agrees with its own float64 evaluation within its own "
    "envelope.",
    postcondition="Every output element lies within the error that an honest implementation in the "
    "required precision regime can make, for values of every scale, sign and pattern, and for "
    "parameters that are not identity defaults; so does every element that the call leaves in what "
    "the reference writes, whether it is returned or not.",
    tolerance="The error envelope of the reference on this very input, element by element and in "
    "the mean square; the worst-case bound on inputs whose rounding errors line up; never narrower "
    "than the native reference's own error.",
    oracle="The reference in float64: its outputs, and the content of what it writes after the call. "
    "Parameters and buffers are compared where the candidate has them by the same name, shape and "
    "dtype, and has been called once.",
    measurement="One run for each distribution, each with its own seed; several seeds of the "
    "declared one; one with the parameters redrawn; the native shape once.",
    signature="An element beyond its bound with the expected value, the value got and the bound, of "
    "an output or of what the call has left in a named input or buffer; or no answer at all.",
)

#: Seeds of the declared distribution: the field's usual test takes five.
SEEDS = 3


def plan(scene: Scene) -> Iterable[Probe]:
    return list(_probes(scene))


def _probes(scene: Scene) -> Iterator[Probe]:
    ordinary = scene.ordinary
    yield ordinary
    if scene.native is not None:
        yield scene.native
    for seed in range(1, SEEDS):
        yield replace(ordinary, seed=seed)
    if scene.task.parameters:
        yield replace(ordinary, weights="redrawn")
        yield replace(ordinary, weights="redrawn", distribution="normal", seed=1)
    for distribution in _distributions(scene):
        yield replace(ordinary, distribution=distribution)


def _distributions(scene: Scene) -> Iterator[str]:
    kinds = {spec.dtype for spec in scene.task.inputs}
    floats = any(kind.startswith(("float", "bfloat")) for kind in kinds)
    integers = any(kind.startswith(("int", "uint")) for kind in kinds)
    for name in DISTRIBUTIONS:
        if name == "declared" or (name == "zipf" and not integers):
            continue
        if floats or name in ("zipf", "sorted", "constant"):
            yield name


def decide(evidence: Evidence) -> Finding:
    finding = decide_values(CONTRACT, evidence, plan(evidence.scene))
    below = evidence.below_required()
    if finding.outcome is Outcome.PASS and below is not None and below.gate == CONTRACT.identifier:
        return below
    return finding
