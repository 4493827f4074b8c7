"""What a contract declares, brought to bear on a verdict. The gates know nothing of contracts: what lies
within the scope, what is compared and what may be refused is settled around them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from adjudge.contract import Finding, Outcome
from adjudge.gates.protocol import Comparison, Evidence, Gate, Scene
from adjudge.gates.reading import owner, value_violation, violated, weight
from adjudge.inputs.levels import SUBNORMAL
from adjudge.inputs.sampler import Sampler
from adjudge.observation import Observation, OutputTensor, Status
from adjudge.oracle import Oracle
from adjudge.probe import Probe
from adjudge.program import Arguments, OutsideDomain, Program
from adjudge.task import Declared, LooserTolerance, Task

#: Special values that are not finite numbers.
NONFINITE = ("nan@", "+inf@", "-inf@")
#: Factors that a contract can take into the declared scope.
_PROMISED = {"sizes", "rank", "layout", "dtype", "distribution", "special"}
#: Factors in which two runs of one determinism promise may differ.
_RUNS = {"repeat", "process", "schedule"}

Array = npt.NDArray[Any]


class Governed:
    """A program whose task declares what a contract says. Implements `program.Program`."""

    def __init__(self, program: Program, declared: Declared) -> None:
        self._program = program
        self._task = replace(program.task, declared=declared)

    @property
    def task(self) -> Task:
        return self._task

    def arguments(self, sizes: Mapping[str, int], sampler: Sampler) -> Arguments:
        return self._program.arguments(sizes, sampler)

    def construct(self, arguments: Arguments, *, seed: int, redrawn: bool) -> Callable[..., Any]:
        return self._program.construct(arguments, seed=seed, redrawn=redrawn)


@dataclass(frozen=True, slots=True, kw_only=True)
class DeclaredScene(Scene):
    """A scene whose declared scope is the contract's."""

    #: Whether every input of a probe lies within the declared ranges.
    within: Callable[[Probe], bool] = lambda probe: True

    def is_declared(self, probe: Probe) -> bool:
        declared = self.task.declared
        native = tuple(sorted(self.task.native.items()))
        return (
            (probe.sizes == native or probe.sizes in declared.sizes)
            and probe.layout in declared.layouts
            and probe.dtype in ("native", *declared.dtypes)
            and (declared.training or probe.weights == "seeded")
            and (declared.batch_invariant or probe.batch == "whole")
            and probe.rank in (0, *declared.ranks)
            and (declared.training or "parameter" not in probe.history)
            and (_admits(declared.values, probe) or _promises_subnormals(declared, probe))
            and (not declared.ranges or self.within(probe))
        )


def _admits(values: str, probe: Probe) -> bool:
    if values == "as-drawn":
        return probe.distribution == "declared" and probe.special == "none"
    return values == "any" or not probe.special.startswith(NONFINITE)


def _promises_subnormals(declared: Declared, probe: Probe) -> bool:
    """A declared policy is a promise on subnormal values, whatever the other values."""
    promised = declared.subnormals in ("keep", "flush")
    return promised and probe.distribution in SUBNORMAL and probe.special == "none"


def within_ranges(
    declared: Declared, arguments: Callable[[Probe], Arguments]
) -> Callable[[Probe], bool]:
    """Whether the finite inputs of a probe lie within the declared ranges; remembered, since several
    gates ask of one probe."""
    known: dict[Probe, bool] = {}

    def within(probe: Probe) -> bool:
        if probe not in known:
            try:
                known[probe] = not beyond(declared, arguments(probe))
            except OutsideDomain:
                known[probe] = False
        return known[probe]

    return within


def beyond(declared: Declared, arguments: Arguments) -> str:
    """The first input with a finite value beyond its declared range, "" if there is none."""
    limits = {name: (low, high) for name, low, high in declared.ranges}
    for name, tensor in arguments.tensors():
        if name not in limits or not tensor.numel():
            continue
        low, high = limits[name]
        values = tensor.detach().double()
        values = values[values.isfinite()]
        if bool(((values < low) | (values > high)).any()):
            return name
    return ""


def excuses(declared: Declared, observation: Observation, probe: Probe) -> str:
    """The words of an error that the contract allows, "" if the run raised none such."""
    raised = observation.raised
    if observation.status is not Status.RAISED or raised is None:
        return ""
    for refusal in declared.refusals:
        if refusal.covers(raised.type, raised.message, probe.sizes, probe.layout):
            return f"the contract allows the refusal: {raised.type}: {raised.message}"[:200]
    return ""


def owes_bits(declared: Declared, probe: Probe, other: Probe) -> bool | None:
    """Whether the contract settles if two probes owe each other the same bits; None if it does not."""
    differing = {n for n in _RUNS if getattr(probe, n) != getattr(other, n)}
    if not differing or not declared.determinism or probe.without(_RUNS) != other.without(_RUNS):
        return None
    return declared.determinism == "bitwise"


def unpromised(declared: Declared, probe: Probe) -> str:
    """Why nothing is promised of the values of a probe, "" if they are."""
    if declared.nonfinite == "unspecified" and probe.special.startswith(NONFINITE):
        return "the contract promises nothing for inputs that hold NaN or infinities"
    return ""


def loosened(declared: Declared, oracle: Oracle, observation: Observation) -> Observation:
    """The observation with each element that a declared tolerance accepts made the reference's own, so
    that what is left is judged as ever. The derived bound stays the least."""
    if not declared.looser:
        return observation
    tolerances = {item.path: item for item in declared.looser}
    # By path: of several gradients, some may be missing.
    truth = {n.path: (n, e) for n, e in zip(oracle.native, oracle.exact, strict=True)}
    outputs = []
    for output in observation.outputs:
        tolerance = tolerances.get(output.path)
        if tolerance is not None and output.path in truth:
            native, exact = truth[output.path]
            if native.dtype == output.dtype and native.data.shape == output.data.shape:
                near = _accepted(tolerance, output, native.data, exact.data)
                output = replace(output, data=np.where(near, native.data, output.data))
        outputs.append(output)
    return replace(observation, outputs=tuple(outputs))


def _accepted(
    tolerance: LooserTolerance, output: OutputTensor, native: Array, exact: Array
) -> Array:
    got, truth = output.data.astype(np.float64), exact.astype(np.float64)
    with np.errstate(all="ignore"):
        near = np.abs(got - truth) <= tolerance.atol + tolerance.rtol * np.abs(truth)
        if tolerance.steps:
            near |= _steps(output.data, native) <= tolerance.steps
    accepted: Array = near & np.isfinite(got) & np.isfinite(truth)
    return accepted


def _steps(one: Array, other: Array) -> Array:
    """Representable values between two arrays of one dtype stored in few bits."""
    if one.dtype.kind in "iu":
        apart: Array = np.abs(one.astype(np.int64) - other.astype(np.int64))
        return apart
    # Bits of a float, its sign apart, count its representable values upwards.
    ranks = []
    for array in (one, other):
        bits = np.ascontiguousarray(array).view(np.int8).astype(np.int64)
        ranks.append(np.where(bits < 0, -(bits & 0x7F), bits))
    distance: Array = np.abs(ranks[0] - ranks[1])
    return distance


def bound_words(declared: Declared, found: Comparison) -> Comparison:
    """The comparison with the declared tolerance beside the derived bound."""
    path = found.where.removeprefix("output")
    tolerance = next((item for item in declared.looser if item.path == path), None)
    if found.outcome != "value" or tolerance is None:
        return found
    words = (
        f"{tolerance.steps} step"
        if tolerance.steps
        else (f"{tolerance.atol:g} + {tolerance.rtol:g} |expected|")
    )
    return replace(found, bound=f"the larger of {found.bound} and the declared {words}")


def decide(gate: Gate, evidence: Evidence) -> Finding:
    """The gate's finding, and the violation that a gate without a contract would call a refusal: an
    error raised where the contract promises an answer."""
    finding = gate.decide(evidence)
    scene = evidence.scene
    if not isinstance(scene, DeclaredScene):
        return finding
    if finding.outcome in (Outcome.PASS, Outcome.REFUSAL):
        refused = _refused(gate, evidence, scene)
        if refused is not None:
            violation, exact = value_violation(evidence, refused)
            return violated(gate.CONTRACT, evidence, violation, exact=exact, probes=finding.probes)
    if scene.task.declared.determinism == "envelope":
        return replace(finding, notes=tuple(map(_own_words, finding.notes)))
    return finding


def _own_words(note: str) -> str:
    return note.replace(
        "the reference's own bits move there", "the contract lets runs differ by rounding"
    )


def _refused(gate: Gate, evidence: Evidence, scene: DeclaredScene) -> Probe | None:
    """The simplest probe of the gate's own that is promised an answer and raised an error."""
    owed = [
        probe
        for probe, observation in evidence.observations.items()
        if observation.status is Status.RAISED
        and set(probe.factors) <= _PROMISED
        and scene.is_declared(probe)
        and owner(scene, probe) == gate.CONTRACT.identifier
    ]
    return min(owed, key=weight, default=None)


def _nearest(sizes: Iterable[int], size: int) -> int:
    return min(sizes, key=lambda other: abs(other - size))


def promised_points(
    task: Task, base: Mapping[str, int], affordable: int
) -> Iterable[dict[str, int]]:
    """Points at the ends of each declared range of sizes and at each listed size, other symbols at their
    declared size nearest to the base.

    Args:
        affordable: how many times as many elements as at the base point a run may have.
    """
    scope = getattr(task.declared.sizes, "ranges", ())
    if not scope:
        return
    ends = {name: sorted({n for r in found for n in (r.low, r.last)}) for name, found in scope}
    near = {name: _nearest(sizes, base.get(name, 1)) for name, sizes in ends.items()}
    for name, sizes in ends.items():
        for size in sizes:
            point = {**task.native, **near, name: size}
            growth = 1.0
            for symbol, value in point.items():
                growth *= max(value, 1) / max(base.get(symbol, 1), 1)
            if growth <= affordable:
                yield point
