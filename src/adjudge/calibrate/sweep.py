"""Measures a subject: honest noise, trip points by bisection, real defects.

Distances are in envelopes: the error of an element over the spread that the oracle derives for it
(the largest element), and the same in the mean square, counted as the judge counts it. Trip points
are those of the judge itself: the smallest injected error that `Oracle.compare`, confirmed by fresh
samples, convicts.
"""

from __future__ import annotations

import math
import platform
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from adjudge import arrays
from adjudge.calibrate.subjects import SUBJECTS, Subject, kept, product
from adjudge.calibration import pair
from adjudge.contract import Kind
from adjudge.frontends.kernelbench import KernelBenchProgram
from adjudge.gates import GATES
from adjudge.gates.protocol import Comparison
from adjudge.inputs.levels import GAPS, LATTICES
from adjudge.judge.cases import CaseBuilder, is_generic
from adjudge.observation import Observation, OutputTensor, Status
from adjudge.oracle.compare import SAMPLES, between
from adjudge.oracle.evaluate import Oracle
from adjudge.oracle.regimes import regime
from adjudge.probe import Probe, sizes_of

Array = npt.NDArray[Any]
#: One case on one seed: its distance, times the trip point, the judge's word.
Seen = tuple["Distance", float, Comparison]
Progress = Callable[[str, int, int], None]

#: Seeds of the inputs on which everything is measured.
SEEDS = 3
#: Injected errors lie between these, in envelopes; so many halvings of the interval's logarithm.
LEAST, MOST, HALVINGS = 0.25, 2.0**16, 14
#: Significant bits of accumulators and factors that the gap test is asked about.
BITS = (8, 9, 10, 11, 12, 14, 16, 24)


@dataclass(frozen=True, slots=True, kw_only=True)
class Distance:
    """An error in envelopes. Infinite where the class of value (NaN, infinity) is another."""

    element: float
    mean_square: float

    def over(self, trip: Distance) -> float:
        """How many times beyond the nearer of two trip points; under 1 is inside of both."""
        return max(self.element / trip.element, self.mean_square / trip.mean_square)


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    name: str
    element: float
    mean_square: float
    #: Times the trip point: the largest of all seeds if honest, the least if a defect.
    over: float
    #: Seeds on which the judge convicts.
    convicted: int
    #: Whether it needs no bound on the error for that, so that the distance says nothing.
    exact: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    gate: str
    regime: str
    probe: str
    #: Smallest error of one element that convicts, and smallest of all elements, in envelopes.
    trip_element: float
    trip_mean_square: float
    honest: tuple[Case, ...]
    defects: tuple[Case, ...]

    @property
    def above_noise(self) -> float:
        """Trip point over the loudest honest case."""
        return 1 / max(case.over for case in self.honest)

    @property
    def below_defect(self) -> float:
        """The smallest real defect over the trip point."""
        return min(case.over for case in self.defects if not case.exact)


@dataclass(frozen=True, slots=True, kw_only=True)
class Gap:
    """What the gap test and the lattice say of one precision."""

    what: str
    bits: int
    convicted: bool


def derived_gates() -> tuple[str, ...]:
    """The gates that compare with a derived bound: those that say so, and `scale-variant`, which falls
    back on the envelope where bits do not scale."""
    named = [g.CONTRACT.identifier for g in GATES if g.CONTRACT.kind is not Kind.EXACT]
    order = [g.CONTRACT.identifier for g in GATES]
    return tuple(sorted({*named, "scale-variant"}, key=order.index))


class Stage:
    """One subject on one seed: inputs, oracle, and the judge's word on an answer."""

    def __init__(self, subject: Subject, seed: int, **factors: str) -> None:
        text = subject.reference
        text = text if "\n" in text else pair(text).reference
        program = KernelBenchProgram(text, subject.gate, "")
        sizes = sizes_of({**program.task.native, **subject.sizes})
        self.probe = Probe(sizes=sizes, seed=seed, **{**subject.factors, **factors})  # type: ignore[arg-type]
        builder = CaseBuilder(program, by_name=True)
        arguments = builder.arguments(self.probe)
        self.inputs = [t.detach() for _, t in arguments.tensors()]
        self.oracle: Oracle
        if self.probe.cotangent == "none":
            make = builder.make(self.probe, arguments)
            generic = is_generic(self.probe)
            self.oracle = Oracle(make, arguments, generic=generic, seed=seed)
        else:
            self.oracle = builder.gradient_oracle(self.probe, arguments)
            given = builder.gradients(self.probe, arguments).cotangents
            self.inputs += [t for t in given if t is not None]
        self.required = self.oracle.required
        (self.native,), (exact,) = self.oracle.native, self.oracle.exact
        self.exact: Array = exact.data.astype(np.float64)
        held = regime(self.required)
        self.cuts = held.cuts
        eps = float(torch.finfo(arrays.torch_dtype(self.native.dtype)).eps)
        held = replace(held, store=max(held.store, eps / 2))
        floor = 2.0**-24 if self.native.dtype == "float16" else 2.0**-126
        self.envelope: Array = (
            self.oracle.envelope(held, SAMPLES)[0] + floor + np.abs(self.exact) * held.store / 2
        )

    def observation(self, values: Array) -> Observation:
        data = values.astype(self.native.data.dtype)
        strides = tuple(n // data.itemsize for n in data.strides)
        output = OutputTensor(
            path=self.native.path,
            data=data,
            dtype=self.native.dtype,
            strides=strides,
            device="cpu",
        )
        structure = self.oracle.structure
        return Observation(status=Status.ANSWERED, outputs=(output,), structure=structure)

    def judged(self, values: Array) -> Comparison:
        return self.oracle.compare(self.observation(values), self.required, confirm=True)

    def convicts(self, values: Array) -> bool:
        return self.judged(values).broken

    def distance(self, values: Array) -> Distance:
        stored = values.astype(self.native.data.dtype).astype(np.float64)
        if not np.isfinite(stored).all():
            return Distance(element=math.inf, mean_square=math.inf)
        about = self.exact
        if self.cuts:
            about = between(self.oracle.exact, self.oracle.cut, self.observation(values))[0]
        error = np.abs(stored - about)
        rms = math.sqrt(np.mean(error**2) / np.mean(self.envelope**2))
        return Distance(element=float((error / self.envelope).max()), mean_square=rms)

    def trip(self, direction: Array) -> Array:
        """The answer with the smallest multiple of `direction` (in envelopes) that convicts.

        Raises:
            AssertionError: not even the largest does.
        """

        def injected(size: float) -> Array:
            return self.exact + direction * self.envelope * size

        low, high = math.log2(LEAST), math.log2(MOST)
        assert self.convicts(injected(MOST))
        assert not self.convicts(injected(LEAST))
        for _ in range(HALVINGS):
            middle = (low + high) / 2
            if self.convicts(injected(2**middle)):
                high = middle
            else:
                low = middle
        return injected(2**high)


def measure(subject: Subject) -> Row:
    """Everything about one gate. Each case is held against the trip points of its own seed; those that
    are told are the lowest of all seeds."""
    honest: dict[str, list[Seen]] = {n: [] for n in subject.honest}
    defects: dict[str, list[Seen]] = {n: [] for n in subject.defects}
    trips = []
    with torch.no_grad():
        for seed in range(SEEDS):
            stage = Stage(subject, seed)
            one = np.zeros(stage.exact.shape)
            middle = np.argsort(stage.envelope, axis=None)[one.size // 2]
            one.flat[middle] = 1.0
            signs = np.where(np.random.default_rng(seed).random(one.shape) < 0.5, -1.0, 1.0)
            trip = Distance(
                element=stage.distance(stage.trip(one)).element,
                mean_square=stage.distance(stage.trip(signs)).mean_square,
            )
            trips.append(trip)
            for found, implementations in ((honest, subject.honest), (defects, subject.defects)):
                for name, implementation in implementations.items():
                    values = arrays.to_numpy(implementation(*stage.inputs))
                    distance = stage.distance(values)
                    found[name].append((distance, distance.over(trip), stage.judged(values)))
    return Row(
        gate=subject.gate,
        regime=stage.required,
        probe=" ".join(
            [*(f"{k}={v}" for k, v in stage.probe.sizes), *map(str, subject.factors.values())]
        ),
        trip_element=min(t.element for t in trips),
        trip_mean_square=min(t.mean_square for t in trips),
        honest=tuple(_case(name, seen, max) for name, seen in honest.items()),
        defects=tuple(_case(name, seen, min) for name, seen in defects.items()),
    )


def _case(
    name: str,
    seen: Sequence[Seen],
    extreme: Callable[[list[float]], float],
) -> Case:
    return Case(
        name=name,
        element=extreme([d.element for d, _, _ in seen]),
        mean_square=extreme([d.mean_square for d, _, _ in seen]),
        over=extreme([over for _, over, _ in seen]),
        convicted=sum(c.broken for _, _, c in seen),
        exact=all(c.broken and c.exact and c.outcome == "value" for _, _, c in seen),
    )


def gaps() -> tuple[Gap, ...]:
    """Accumulators and factors of each number of bits under the lattice and the gap test, as the gate
    `narrow-accumulator` applies them: no margin is involved."""
    subject = next(s for s in SUBJECTS if s.gate == "narrow-accumulator")
    stages = {name: Stage(subject, 0, distribution=name) for name in (*LATTICES, *GAPS)}
    found = []
    for what in ("accumulator", "factors"):
        for bits in BITS:
            convicted = False
            for name, stage in stages.items():
                a, b = stage.inputs
                if what == "factors":
                    answer = kept(a, bits) @ kept(b, bits)
                else:
                    answer = product(a, b, lambda total, bits=bits: kept(total, bits))  # type: ignore[misc]
                seen = stage.observation(arrays.to_numpy(answer))
                if name in LATTICES:
                    exactly = stage.oracle.compare_exact(seen)
                    convicted |= exactly is not None and exactly.broken
                else:
                    beyond = stage.oracle.compare(seen, stage.required, confirm=True)
                    convicted |= beyond.outcome == "value" and beyond.beyond_worst_case
            found.append(Gap(what=what, bits=bits, convicted=bool(convicted)))
    return tuple(found)


def record(rows: Sequence[Row], gap: Sequence[Gap]) -> dict[str, Any]:
    """What is written to `calibration.json`. Infinite distances are null."""

    def plain(value: Any) -> Any:
        if isinstance(value, dict):
            return {k: plain(v) for k, v in value.items()}
        if isinstance(value, (list, tuple)):
            return [plain(v) for v in value]
        if isinstance(value, float):
            return float(f"{value:.4g}") if math.isfinite(value) else None
        return value

    found = [
        {**asdict(row), "above_noise": row.above_noise, "below_defect": row.below_defect}
        for row in rows
    ]
    head = {
        "schema": 1,
        "date": datetime.now(UTC).date().isoformat(),
        "machine": f"{platform.machine()} CPU, Python {platform.python_version()}, "
        f"torch {torch.__version__}",
        "seeds": SEEDS,
    }
    shown: dict[str, Any] = plain({**head, "gates": found, "gap": [asdict(g) for g in gap]})
    return shown


__all__ = ["BITS", "Row", "derived_gates", "gaps", "measure", "record"]
