"""The precision grade of a candidate: what is narrow in it, its sums or its factors, and the conviction
of one below the grade that its task requires."""

from __future__ import annotations

import time
from collections.abc import Container, Iterable, Sequence
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import torch

from adjudge.contract import Finding, Outcome, Scope
from adjudge.gates.losing import (
    CONTROL,
    DRAWS,
    EIGHT,
    ELEVEN,
    GAPPED,
    LENGTH,
    Trial,
    Weighing,
    diluted,
    steps,
    swamped,
    tied,
    trials,
)
from adjudge.gates.protocol import Comparison, Scene
from adjudge.gates.reading import compared_violation, scope_of
from adjudge.inputs.levels import DILUTED, PARTS, SCALES, SUMS, SWAMPED, TENS
from adjudge.observation import Observation
from adjudge.oracle import NARROW_FACTORS, NARROW_SUMS, REGIMES, Oracle, evaluate
from adjudge.oracle.compare import SAMPLES
from adjudge.oracle.storage import held_in
from adjudge.probe import Probe
from adjudge.program import OutsideDomain

if TYPE_CHECKING:
    from adjudge.judge.docket import Docket

#: Share of the time allowed after which no more runs are made to show a narrow accumulator: over a sum
#: long enough for that, one of them may take the time of all others together.
SETTLING = 0.5
#: Significant bits of a float16.
ELEVEN_BITS = 11

#: The regime of the widest envelope.
LOOSEST = "bf16xbf16"
#: Parts whose sums 11 bits hold.
_EIGHT_PARTS = [name for (bits, _, _), name in PARTS.items() if bits == EIGHT]
#: What a weighted mean of zeros and ones moves by at least where weights of 11 bits are added to one of
#: 1: at the 512 keys that every run with them has, 0.19.
MOVED = 0.125
#: A weight of 1 next to none is 1 but for roundings of float64.
_NEARLY = 2.0**-40
#: Values of TENS times this power of two are integers: sums of them are owed bit for bit, and what few
#: rows have in common, so that no spread tells it, is seen.
WHOLE = 9


class Precision:
    """The grade of a docket's candidate, and what it rests on.

    Args:
        asked: the gates that are asked.
    """

    def __init__(self, docket: Docket, asked: Container[str]) -> None:
        self._docket = docket
        self._asked = asked
        #: A run on which an accumulator was seen to lose part of a sum.
        self.losing: Probe | None = None
        now, deadline = time.monotonic(), docket.deadline
        self._settled_by = None if deadline is None else now + SETTLING * (deadline - now)
        self._masks: dict[Probe, list[npt.NDArray[np.bool_]]] = {}

    @property
    def scene(self) -> Scene:
        return self._docket.scene

    def _run(self, probes: Iterable[Probe]) -> None:
        """Makes the runs without a look at them: in the regime that the candidate is held to they are
        compared once that is known."""
        self._docket.run(probes, look=None)

    def settle(self) -> str | None:
        """The strictest regime that the ordinary runs meet, or what is narrow in a candidate that is
        below the required one, there or on runs made to show a narrow accumulator; None where no
        ordinary run answers."""
        docket, ordinary = self._docket, self.scene.ordinary
        probes = [p for p in (ordinary, replace(ordinary, seed=1)) if docket.answers(p)]
        grades = [docket.oracle(p).grade(docket.observations[p]) for p in probes]
        if not grades:
            return None
        worst = max(REGIMES.index(g) if g in REGIMES else len(REGIMES) for g in grades)
        grade = REGIMES[worst] if worst < len(REGIMES) else "none"
        below = worst > REGIMES.index(docket.required)
        asked = "narrow-accumulator" in self._asked
        if (asked and (below or self._in_half())) or (below and grade != "none"):
            narrow = self._narrow_sums(probes)
            return narrow or (grade if grade == "none" or not below else self._named(probes, grade))
        return grade

    def _must_settle(self) -> bool:
        """Whether the share of the time allowed that finding what is narrow may take is spent."""
        return self._settled_by is not None and time.monotonic() > self._settled_by

    def _settles(self, probe: Probe) -> bool:
        """Whether what is left of that share holds a comparison of the probe's."""
        if self._settled_by is None:
            return True
        try:
            operations, elements = self._docket.oracle(probe).work
        except OutsideDomain:
            return True
        each = max(operations / evaluate.LONG, elements / evaluate.HEAVY)
        return time.monotonic() + each * SAMPLES < self._settled_by

    def _in_half(self) -> bool:
        return self._docket.oracle(self.scene.ordinary).dtype in (torch.float16, torch.bfloat16)

    def _narrow_sums(self, probes: list[Probe]) -> str:
        """The regime of accumulators that lose part of what they are fed, all of which is short; "" if
        none is seen to. Which of them a sum tells that needs more than 8 bits, and no more than 11."""
        redrawable = self._docket.builder.by_name or not self.scene.task.parameters
        told = lost = False
        found: list[Sequence[Probe]] = [*trials(self.scene)] if redrawable else []
        if self._in_half() and (long := swamped(self.scene)):
            found.append(long)
        found.append(steps(self.scene))
        together = tied(self.scene) if redrawable else []
        found += self._behind_a_mask() if redrawable else []
        while found and not self._must_settle():
            control, *harder = found.pop(0)
            self._run([control, *harder])
            if not self._holds(control):
                # Perhaps since one size alone was made long.
                found, together = [*found, *together], []
                continue
            for probe in filter(self._docket.answers, harder):
                if not self._loses(probe):
                    # In half precision, one rounding to 8 bits shows only where the answer is exact.
                    swamps = probe.distribution in SWAMPED
                    exact = not self._in_half() or self._docket.compare_exact(probe) is not None
                    told = told or ((swamps or exact) and self._tells(probe))
                    continue
                self.losing = self.losing or probe
                if self._tells(probe):
                    return "bf16xbf16"
                lost = True
        if not lost:
            return self._narrow_weights() if redrawable else ""
        if told:
            return "fp16xfp16"
        own = {torch.float16: "fp16xfp16", torch.bfloat16: "bf16xbf16"}
        # Of 11 bits or fewer. That it is of the task's own dtype is the most that is known.
        return own.get(self._docket.oracle(self.scene.ordinary).dtype) or (
            self._first_of(NARROW_SUMS, probes, "sums") or LOOSEST
        )

    def _narrow_weights(self) -> str:
        """The regime of accumulators that lose weights of a softmax; "" if none is seen to."""
        seen = told = False
        for weighing in diluted(self.scene):
            trial, shown, together = weighing
            if not self._docket.oracle(self.scene.ordinary).weighs or (together and seen):
                break
            if not self._settles(shown[-1]):
                break
            self._run(shown)
            looked_at = [p for p in shown if self._docket.answers(p)]
            lost = next((p for p in looked_at if not self._must_settle() and self._loses(p)), None)
            if lost is None:
                shows = self._shows(weighing)
                seen, told = seen or shows, told or (shows and trial.eight in looked_at)
                continue
            self._run([trial.control] if told else [trial.control, trial.eight])
            holds = self._holds_where_alone if together else self._holds
            if not holds(trial.control):
                continue
            self.losing = lost
            eight = not told and self._docket.answers(trial.eight) and self._loses(trial.eight)
            return "bf16xbf16" if eight else "fp16xfp16"
        return ""

    def _behind_a_mask(self) -> list[Trial]:
        """Parts among values, for attention that does not see all of them while the keys alone are long:
        a causal mask leaves those behind all queries out."""
        weighings = diluted(self.scene) if self._docket.oracle(self.scene.ordinary).weighs else []
        if not any(w.together for w in weighings) or any(map(self._shows, weighings)):
            return []
        found = []
        for weighing in weighings:
            if weighing.together:
                # Over more of them, what is lost is less than float32's own worst case.
                long, values = weighing.trial.control, DRAWS - 1
                base = dict(self.scene.discovery.base)
                sizes = {s: n if n == base[s] else min(n, LENGTH) for s, n in long.sizes}
                plain = long.at(sizes)
                for flat in (False, True):
                    bits = (CONTROL, EIGHT, ELEVEN)
                    names = [PARTS[n, values, flat] for n in bits]
                    found.append(Trial(*(replace(plain, distribution=name) for name in names)))
        return found

    def _shows(self, weighing: Weighing) -> bool:
        """Whether the weights take something from where one alone has all of it, as they do not where a
        mask leaves out most of the keys. Of all sizes long together it is not asked."""
        trial, _, together = weighing
        if together:
            return False
        try:
            with_them, alone = (self._docket.oracle(p).exact for p in (trial.eleven, trial.control))
        except OutsideDomain:
            return False
        return any(
            bool(((b.data > 1 - _NEARLY) & (a.data < 1 - MOVED)).any())
            for a, b in zip(with_them, alone, strict=True)
        )

    def _tells(self, probe: Probe) -> bool:
        """Whether 11 bits hold every sum there, and 8 do not."""
        try:
            oracle = self._docket.oracle(probe)
        except OutsideDomain:
            return False
        if probe.distribution in _EIGHT_PARTS and not oracle.isolates_sums:
            return any(mask.any() for mask in self._isolated(probe))
        return oracle.isolates_sums and EIGHT <= oracle.sum_bits <= ELEVEN_BITS

    def _holds(self, probe: Probe) -> bool:
        """Whether nothing is wrong on a run where nothing can be lost."""
        if not self._docket.answers(probe):
            return False
        found = self._docket.compare_exact(probe) or self._where_isolated(probe)
        return (found or self._docket.compare_required(probe)).ok

    def _holds_where_alone(self, probe: Probe) -> bool:
        """The same of rows in which one weight has all: those from which a causal mask hides it weigh
        others alike, the number of which may be lost."""
        if not self._docket.answers(probe):
            return False
        try:
            oracle = self._docket.oracle(probe)
            alone = [leaf.data > 1 - _NEARLY for leaf in oracle.exact]
            if not any(mask.any() for mask in alone):
                return False
            there = _only(self._docket.observations[probe], oracle, alone)
            return oracle.compare(there, self._docket.required, confirm=True).ok
        except OutsideDomain:
            return False

    def _loses(self, probe: Probe) -> bool:
        if probe.distribution in DILUTED.values():
            # The weights have more bits than factors may have. What lies within the wider bound is not
            # held against the other: each that is not held to costs dozens of evaluations.
            return self._beyond_factors(probe) and _beyond(self._docket.compare_gap(probe))
        exactly = self._docket.compare_exact(probe)
        if exactly is not None:
            return exactly.broken
        if not self._isolates(probe):
            somewhere = self._where_isolated(probe)
            return somewhere is not None and _beyond(somewhere)
        if probe.distribution in SWAMPED:
            return _beyond(self._docket.compare_gap(probe))
        # A factor in float16 may have overflown as well as a sum in it.
        outgrown = not self._in_half() and self._docket.oracle(probe).outgrows_float16
        return not outgrown and _beyond(self._docket.compare_required(probe))

    def _where_isolated(self, probe: Probe) -> Comparison | None:
        """The comparison of those elements of a float32 answer that are made of short factors alone, and
        others are not: of rows of attention in which a causal mask leaves a power of two of keys."""
        if self._in_half() or probe.distribution not in PARTS.values() or self._isolates(probe):
            return None
        masks = self._isolated(probe)
        if not any(mask.any() for mask in masks):
            return None
        oracle = self._docket.oracle(probe)
        if oracle.outgrows_float16:
            return None
        return oracle.compare_gap(
            _only(self._docket.observations[probe], oracle, masks), self._docket.required
        )

    def _isolated(self, probe: Probe) -> list[npt.NDArray[np.bool_]]:
        """Where bfloat16 holds an element and all that it is made of."""
        if probe not in self._masks:
            try:
                self._masks[probe] = self._docket.oracle(replace(probe, dtype="bfloat16")).owed
            except OutsideDomain:
                self._masks[probe] = []
        return self._masks[probe]

    def _beyond_factors(self, probe: Probe) -> bool:
        """Whether an error is larger than any that narrow factors make: of 11 bits, unless the candidate
        is seen to read 8."""
        eight = self._docket.required == "bf16xfp32" or self._reads_eight
        name = "bf16xfp32" if eight else "tf32"
        try:
            oracle, observation = self._docket.oracle(probe), self._docket.observations[probe]
            return _beyond(oracle.compare_gap(observation, name, "factors"))
        except OutsideDomain:
            return False

    def _named(self, probes: list[Probe], grade: str) -> str:
        """What is narrow in a candidate below the required grade whose accumulators have lost nothing
        that was made to show it; the grade as it is where no regime of one kind holds."""
        isolating = [self._on_short_factors(name) for name in SUMS]
        self._run(isolating)
        for probe in isolating:
            if not self._docket.answers(probe) or not self._isolates(probe):
                continue
            if _beyond(self._docket.compare_required(probe)):
                held = held_in(self._docket.observations[probe])
                return held or self._first_of(NARROW_SUMS, probes, "sums") or grade
        return self._first_of(self._factors(), probes, "factors") or grade

    def _factors(self) -> tuple[str, ...]:
        """Which regimes of NARROW_FACTORS come into question: one of 8 bits is told from those of 11 by
        values of ten, one that float16 is used for by values beyond its range."""
        if self._reads_eight:
            return ("bf16xfp32",)
        floats = [s for s in self.scene.task.inputs if s.dtype == "float32"]
        beyond = [
            replace(self.scene.ordinary, special=f"scaled:{max(SCALES)}@{i}")
            for i in range(min(len(floats), DRAWS))
        ]
        self._run(beyond)
        overflows = any(self._out_of_range(p) for p in beyond if self._docket.answers(p))
        return ("fp16xfp32",) if overflows else NARROW_FACTORS

    @cached_property
    def _reads_eight(self) -> bool:
        """Whether factors are seen to have 8 bits: values of ten are exact with factors of 11."""
        tens = [replace(self.scene.ordinary, distribution=name) for name in TENS]
        whole = replace(tens[0], special=f"scaled:{WHOLE}@0")
        self._run([*tens, whole])
        if any(self._lacks_tens(p) for p in tens if self._docket.answers(p)):
            return True
        exactly = self._docket.compare_exact(whole) if self._docket.answers(whole) else None
        return exactly is not None and exactly.broken

    def _out_of_range(self, probe: Probe) -> bool:
        """Whether values are infinite, or what an infinity is divided into is gone."""
        return self._docket.compare_required(probe).outcome == "class" or self._lacks_tens(probe)

    def _lacks_tens(self, probe: Probe) -> bool:
        """Whether an error is larger than any that factors of 11 bits make."""
        try:
            oracle, observation = self._docket.oracle(probe), self._docket.observations[probe]
            return oracle.exceeds(observation, "tf32", "factors")
        except OutsideDomain:
            return False

    def _first_of(self, names: tuple[str, ...], probes: list[Probe], narrow: str) -> str:
        docket = self._docket
        grades = [docket.oracle(p).grade(docket.observations[p], names, narrow) for p in probes]
        return "" if "none" in grades else max(grades, key=names.index)

    def _on_short_factors(self, distribution: str) -> Probe:
        by_name = bool(self.scene.task.parameters) and self._docket.builder.by_name
        weights = "lattice" if by_name else "seeded"
        return replace(self.scene.ordinary, distribution=distribution, weights=weights)

    def _of_precision(self, probe: Probe) -> str:
        asked = "narrow-accumulator" in self._asked
        return "narrow-accumulator" if asked and self._sums(probe) else "wrong-value"

    def _sums(self, probe: Probe) -> bool:
        try:
            return self._docket.oracle(probe).sums
        except OutsideDomain:
            return False

    def _isolates(self, probe: Probe) -> bool:
        try:
            return self._docket.oracle(probe).isolates_sums
        except OutsideDomain:
            return False

    def below_required(self) -> Finding | None:
        """The conviction of a candidate below the required grade: of `narrow-accumulator`, or of
        `wrong-value` where nothing is summed or multiplied, or the former was not asked."""
        grade, required = self._docket.grade, self._docket.required
        if grade == "none" or REGIMES.index(grade) <= REGIMES.index(required):
            return None
        return self._below_ordinarily() or self._below_where_lost()

    def _below_where_lost(self) -> Finding | None:
        """By the run on which an accumulator was seen to lose something."""
        if self.losing is None:
            return None
        observation = self._docket.observations[self.losing]
        if self.losing.distribution in GAPPED:
            c = self._docket.compare_gap(self.losing)
        else:
            exactly = self._docket.compare_exact(self.losing)
            c = exactly or self._docket.compare_required(self.losing)
        violation = replace(
            compared_violation(self.losing, observation, c),
            signature="narrow",
            message=f"sums are kept in less than float32: the precision met is {self._docket.grade}",
        )
        return Finding(
            gate=self._of_precision(self.losing),
            outcome=Outcome.VIOLATION,
            reason=violation.message,
            scope=scope_of(self.scene, self.losing),
            exact=True,
            violation=violation,
            probes=len(self._docket.observations),
        )

    def _below_ordinarily(self) -> Finding | None:
        ordinary = self.scene.ordinary
        for probe in (ordinary, replace(ordinary, seed=1)):
            if not self._docket.answers(probe):
                continue
            observation = self._docket.observations[probe]
            c = self._docket.compared(probe, observation, self._docket.required, confirm=True)
            if not c.broken:
                continue
            violation = replace(
                compared_violation(probe, observation, c),
                signature="precision",
                message=f"meets only {self._docket.grade}, where the task requires "
                f"{self._docket.required}",
            )
            return Finding(
                gate=self._of_precision(probe),
                outcome=Outcome.VIOLATION,
                reason=violation.message,
                scope=self._precision_scope(probe),
                violation=violation,
                probes=len(self._docket.observations),
            )
        return None

    def _precision_scope(self, probe: Probe) -> Scope:
        native = self.scene.native
        if native is None:
            # Rounding does not go away at a larger size.
            return Scope.DECLARED
        if self._docket.answers(native):
            observation = self._docket.observations[native]
            if self._docket.compared(native, observation, self._docket.required).broken:
                return Scope.DECLARED
        return scope_of(self.scene, probe)


def _beyond(comparison: Comparison) -> bool:
    return comparison.outcome == "value" and comparison.beyond_worst_case


def _only(
    observation: Observation, oracle: Oracle, masks: list[npt.NDArray[np.bool_]]
) -> Observation:
    """The observation with the reference's own values everywhere else."""
    if not len(observation.outputs) == len(oracle.native) == len(masks):
        return observation
    outputs = [
        replace(output, data=np.where(here, output.data, native.data))
        if output.data.shape == native.data.shape == here.shape and output.dtype == native.dtype
        else output
        for output, native, here in zip(observation.outputs, oracle.native, masks, strict=True)
    ]
    return replace(observation, outputs=tuple(outputs))
