"""The docket: every probe asked for, every observation made, every comparison drawn from them."""

from __future__ import annotations

import contextlib
import time
from collections import OrderedDict
from collections.abc import Callable, Container, Generator, Iterable, Mapping, Sequence, Set
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from math import prod

import numpy as np
import numpy.typing as npt
import torch

from adjudge import arrays
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
from adjudge.gates.reading import State as ProbeState
from adjudge.gates.reading import (
    compared_violation,
    owes_quickness,
    reductions,
    scope_of,
    state,
    unusual,
)
from adjudge.inputs.cotangents import SAME_VALUES
from adjudge.inputs.levels import DILUTED, PARTS, SCALES, SUMS, SWAMPED, TENS
from adjudge.judge import declared
from adjudge.judge.cases import Case, CaseBuilder, is_generic
from adjudge.judge.habits import state_of
from adjudge.judge.runner import Runner
from adjudge.judge.specialisations import Few
from adjudge.judge.varying import Varying
from adjudge.observation import Demand, Observation, Status
from adjudge.oracle import NARROW_FACTORS, NARROW_SUMS, REGIMES, Oracle
from adjudge.oracle.finals import FinalOracle
from adjudge.oracle.scaling import degree
from adjudge.oracle.storage import held_in
from adjudge.probe import Probe
from adjudge.program import OutsideDomain, answer
from adjudge.static.chips import chip
from adjudge.tally import Counting

#: Oracles kept alive. Probes that share their values follow each other in a plan, so a handful is
#: enough; each holds the reference's answers at one point.
KEPT_ORACLES = 12

#: Factors that leave the values of the inputs alone, so that probes which differ only in them share
#: one oracle.
_VALUE_FREE = ("fill", "guard", "schedule", "config", "history", "process", "repeat")
#: Those, and the backward pass, say nothing of what a forward call returns.
_WITHOUT_ALIASES = (*_VALUE_FREE, "cotangent")
_VALUE_FREE_LAYOUTS = {
    "transposed", "sliced", "padded", "offset", "misaligned", "side-sliced", "channels-last", "far",
}  # fmt: skip

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
#: Regimes that hold factors or sums in float16, and so in its range.
IN_FLOAT16 = ("fp16xfp32", "fp16xfp16")

#: Processes that run one probe alone are numbered from here on: probes ask for small numbers.
FIRST_FRESH = 1_000

#: The second process that probes ask for by themselves.
SECOND = 1

#: Sizes from here on are outsized: beyond what any probe of a gate's own plan has.
OUTSIZED = 1 << 16

#: Runs without an answer after which nothing as large is asked any more.
PATIENCE = 2

#: Crashes of a candidate that crashes on the ordinary run, after which nothing but the declared shape is
#: asked any more: each costs a process, and no gate but the first can decide without that run.
MOST_CRASHES = 12

_CRASHES = (Status.CRASHED, Status.EXITED)

#: Why a run is not made for which kernels would be compiled once more.
BEYOND = (
    "compiling: its sizes, dtype and layout would have kernels compiled once more than is allowed"
)

Progress = Callable[[str, int, int], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Shared:
    """What one docket has found, as another one takes it over. Field meanings as in `Docket`."""

    observations: Mapping[Probe, Observation]
    skipped: Mapping[Probe, str]
    comparisons: Mapping[tuple[Probe, tuple[str, ...], str], Comparison]
    answerable: Set[Probe]
    hung: tuple[tuple[bool, int], ...]
    input_digests: Mapping[Probe, str]
    timings: Mapping[str, float]


class Docket:
    """Implements `gates.protocol.Evidence`, and runs what is still missing."""

    def __init__(
        self,
        scene: Scene,
        builder: CaseBuilder,
        runner: Runner,
        *,
        required: str,
        deadline: float | None = None,
        asked: Container[str] = ("narrow-accumulator",),
    ) -> None:
        self._scene = scene
        self.builder = builder
        self.runner = runner
        self.grade = "none"
        #: A run on which an accumulator was seen to lose part of a sum.
        self.losing: Probe | None = None
        self.deadline = deadline
        self._asked = asked
        self.timings: dict[str, float] = {}
        self._observations: dict[Probe, Observation] = {}
        self._skipped: dict[Probe, str] = {}
        self._comparisons: dict[tuple[Probe, tuple[str, ...], str], Comparison] = {}
        #: Points at which the reference is known to answer: elsewhere nothing is asked.
        self._answerable: set[Probe] = set()
        self._confirmed: set[tuple[Probe, tuple[str, ...], str]] = set()
        self._oracles: OrderedDict[Probe, Oracle] = OrderedDict()
        self._kept = KEPT_ORACLES
        self._final_oracles: OrderedDict[Probe, FinalOracle] = OrderedDict()
        #: The regime that the task requires; "" derives it from the reference.
        self.required = required or self.oracle(scene.ordinary).required
        #: The regime that the candidate is held to: the required one, or LOOSEST once it has been
        #: found below that.
        self.regime = self.required
        self._native_bits: dict[Probe, tuple[str, ...]] = {}
        #: Whether the reference hands on the memory of what it is given.
        self._aliases: dict[Probe, bool] = {}
        #: Operations of the reference that are documented to vary on a GPU.
        self._varying: dict[Probe, set[str]] = {}
        #: Of the runs that did not answer in time: whether a gradient was asked for, and the size.
        self._hung: list[tuple[bool, int]] = []
        self._crashes = 0
        self.input_digests: dict[Probe, str] = {}
        #: Seconds that single runs may take where those of an ordinary one do not fit.
        self.limits: dict[Probe, float] = {}
        #: Which probes are run where compiling is dear; None runs all.
        self.few: Few | None = None
        self._demands: dict[Probe, tuple[Demand, ...]] = {}
        #: Number of the last process started for one run alone.
        self._processes = FIRST_FRESH

    @property
    def scene(self) -> Scene:
        return self._scene

    @property
    def observations(self) -> Mapping[Probe, Observation]:
        return self._observations

    @property
    def skipped(self) -> Mapping[Probe, str]:
        return self._skipped

    @property
    def device(self) -> str:
        return self.runner.zygote.device

    def run(
        self,
        probes: Iterable[Probe],
        progress: Progress | None = None,
        what: str = "",
        *,
        limited: bool = True,
        look: Callable[[Docket, Probe], object] | None = state,
    ) -> None:
        """Makes the runs that were not made yet, in order.

        While the worker runs one probe, the one before it is compared with the oracle here.

        Args:
            limited: False makes those too for which kernels are compiled once more than `few` allows.
            look: what is made of a run meanwhile.
        """
        wanted = self._missing(probes, limited)
        for made in self._made(wanted, progress, what):
            if look is not None:
                look(self, made)

    def search(self, probes: Iterable[Probe], telling: Callable[[Probe], bool]) -> Probe | None:
        """The first probe whose run is `telling`, of those made already and then of the others in order;
        what comes behind it is left, but for one that the worker may be at."""
        ordered = list(probes)
        found = next((p for p in ordered if p in self._observations and telling(p)), None)
        if found is not None:
            return found
        wanted = self._missing(ordered, True)
        with contextlib.closing(self._made(wanted)) as making:
            found = next((p for p in making if telling(p)), None)
        if found is not None:
            return found
        last = next((p for p in reversed(wanted) if p in self._observations), None)
        return last if last is not None and telling(last) else None

    def _missing(self, probes: Iterable[Probe], limited: bool) -> list[Probe]:
        wanted = [p for p in dict.fromkeys(probes) if p not in self._observations]
        return self.affordable(wanted) if limited else wanted

    def _made(
        self, wanted: list[Probe], progress: Progress | None = None, what: str = ""
    ) -> Generator[Probe, None, None]:
        """Makes the runs in order, and gives out each but the last while the worker is at the next."""
        previous: Probe | None = None
        with ThreadPoolExecutor(1) as courier:
            for done, probe in enumerate(wanted):
                if progress is not None:
                    progress(what, done, len(wanted))
                case = self._case(probe)
                if case is None:
                    continue
                running = courier.submit(self.runner.run, case, timeout=self.limits.get(probe))
                try:
                    if previous is not None:
                        yield previous
                finally:
                    observation = running.result()
                    if observation.status is Status.HUNG and owes_quickness(self, probe):
                        observation = self.runner.patiently(case)
                    self.record(case, observation)
                previous = probe
        if previous is not None:
            # In a fork nobody else has the time.
            state(self, previous)
        if progress is not None and wanted:
            progress(what, len(wanted), len(wanted))

    def affordable(self, probes: list[Probe]) -> list[Probe]:
        """Those for which kernels need not be compiled once more than `few` allows; the others are
        skipped."""
        beyond = [p for p in probes if not self.admits(p)]
        self._skipped.update(dict.fromkeys(beyond, BEYOND))
        return [p for p in probes if self.admits(p)]

    def admits(self, probe: Probe) -> bool:
        """Whether the run is among those that are made where compiling is dear."""
        return self.few is None or self.few.has(probe)

    def _case(self, probe: Probe) -> Case | None:
        """The case of a probe, or None with the reason kept why it is not run."""
        if self.deadline is not None and time.monotonic() > self.deadline:
            self._skipped[probe] = "budget: the time allowed was spent on cheaper probes"
            return None
        if self._wrecked() and probe != self.scene.native:
            self._skipped[probe] = (
                f"the candidate crashed {MOST_CRASHES} times, and in its ordinary run"
            )
            return None
        backward = probe.cotangent != "none"
        if sum(b <= backward and n <= _size(probe) for b, n in self._hung) >= PATIENCE:
            self._skipped[probe] = "the candidate did not answer in time, twice"
            return None
        try:
            case = self.builder.build(probe)
            point = value_point(probe)
            if point not in self._answerable:
                _ = self.oracle(probe, case).native
                self._answerable.add(point)
        except OutsideDomain as why:
            self._skipped[probe] = f"outside the reference's domain: {why}"
            return None
        self._skipped.pop(probe, None)
        return case

    def _wrecked(self) -> bool:
        ordinary = self._observations.get(self.scene.ordinary)
        if self._crashes < MOST_CRASHES or ordinary is None:
            return False
        return ordinary.status in _CRASHES

    def fresh(self, probe: Probe) -> Observation | None:
        """The same run in a process that has run nothing else; None where it cannot be made."""
        case = self._case(probe)
        if case is None:
            return None
        self._processes += 1
        elsewhere = replace(case, probe=replace(probe, process=self._processes))
        return self.runner.run(elsewhere, timeout=self.limits.get(probe))

    def again(self, probe: Probe) -> Observation | None:
        """The same run in another process, that has run other things; None where it cannot be made."""
        case = self._case(probe)
        if case is None:
            return None
        elsewhere = replace(case, probe=replace(probe, process=SECOND))
        return self.runner.run(elsewhere, timeout=self.limits.get(probe))

    def record(self, case: Case, observation: Observation) -> None:
        excuse = declared.excuses(self.scene.task.declared, observation, case.probe)
        if self._outsized(case.probe):
            excuse = excuse or _too_large(observation)
        if excuse:
            self._skipped[case.probe] = excuse
            return
        self._observations[case.probe] = observation
        self.input_digests[case.probe] = case.digest
        self._crashes += observation.status in _CRASHES
        if observation.status is Status.HUNG:
            self._hung.append((case.probe.cotangent != "none", _size(case.probe)))

    def shared(self, *, beyond: Set[Probe]) -> Shared:
        """What was found so far, for a docket in another process that has the runs named."""
        return Shared(
            observations={p: o for p, o in self._observations.items() if p not in beyond},
            skipped=self._skipped,
            comparisons=self._comparisons,
            answerable=self._answerable,
            hung=tuple(self._hung),
            input_digests=self.input_digests,
            timings=self.timings,
        )

    def adopt(self, found: Shared) -> None:
        """Takes over what another docket of the same scene has found."""
        self._observations.update(found.observations)
        self._crashes = sum(o.status in _CRASHES for o in self._observations.values())
        self._skipped.update(found.skipped)
        self._comparisons.update(found.comparisons)
        self._answerable.update(found.answerable)
        self._hung += [run for run in found.hung if run not in self._hung]
        self.input_digests.update(found.input_digests)
        for name, seconds in found.timings.items():
            self.timings[name] = max(seconds, self.timings.get(name, 0.0))

    def drop(self, probes: Iterable[Probe]) -> None:
        """Forgets these runs."""
        for probe in probes:
            self._observations.pop(probe, None)
            self.input_digests.pop(probe, None)

    def within(self, runner: Runner, processes: int) -> None:
        """In a fork: runs are made by this runner, and fresh processes numbered from `processes` on."""
        self.runner = runner
        self._processes = processes

    def close_reductions(self) -> None:
        """Runs the reductions of failing probes that no gate asked for, so that faults find owners."""
        if state(self, self.scene.ordinary) is ProbeState.BROKEN:
            return
        for probe in list(self._observations):
            while state(self, probe) is ProbeState.BROKEN and unusual(self.scene, probe):
                simpler = list(reductions(self.scene, probe))
                self.run(simpler, limited=False)
                probe = next((p for p in simpler if state(self, p) is ProbeState.BROKEN), probe)
                if probe not in simpler:
                    break

    def compare(self, probe: Probe) -> Comparison:
        observation = self._observations[probe]
        key = self._key(probe)
        if key not in self._comparisons:
            regime = self._regime_of(probe, self.regime)
            self._comparisons[key] = (
                Comparison(outcome="undecided", reason="budget: no time was left to compare it")
                if observation.answered and self._too_late(probe)
                else self._compared(probe, observation, regime)
            )
        return self._comparisons[key]

    def _too_late(self, probe: Probe) -> bool:
        """Whether the time allowed is spent and one evaluation of the reference takes about a second: a
        comparison draws dozens. What everything rests on is compared all the same."""
        plain = probe.without(["seed"]) in (self.scene.ordinary, self.scene.native)
        if self.deadline is None or plain or time.monotonic() < self.deadline:
            return False
        try:
            return self.oracle(probe).long
        except OutsideDomain:
            return False

    def confirm(self, probe: Probe) -> Comparison:
        """The comparison of `probe`, drawn again from fresh runs if it convicts by a tolerance."""
        observation = self._observations[probe]
        if not observation.answered or self.compare(probe).outcome != "value":
            return self.compare(probe)
        key = self._key(probe)
        if key not in self._confirmed:
            self._confirmed.add(key)
            regime = self._regime_of(probe, self.regime)
            self._comparisons[key] = self._compared(probe, observation, regime, confirm=True)
        return self._comparisons[key]

    def compare_required(self, probe: Probe) -> Comparison:
        observation = self._observations[probe]
        regime = self._regime_of(probe, self.required)
        return self._compared(probe, observation, regime, confirm=True)

    def compare_exact(self, probe: Probe) -> Comparison | None:
        try:
            return self.oracle(probe).compare_exact(self._observations[probe])
        except OutsideDomain:
            return None

    def compare_gap(self, probe: Probe) -> Comparison:
        try:
            oracle = self.oracle(probe)
            # Values that are alike are rounded alike: only where none of them is do errors not line up.
            weighs = probe.distribution in DILUTED.values() and oracle.weighs
            if weighs or (probe.distribution in SWAMPED and oracle.isolates_sums):
                return oracle.compare_gap(self._observations[probe], self.required)
        except OutsideDomain as why:
            return Comparison(outcome="undecided", reason=f"the reference does not answer: {why}")
        return self.compare_required(probe)

    def demands(self, probe: Probe) -> tuple[Demand, ...]:
        chips = [chip(name) for name in self.scene.task.declared.resources.chips]
        if chips and probe not in self._demands:
            from adjudge.judge.machine import demands

            start = time.perf_counter()
            self._demands[probe] = demands(
                self.scene.candidate.source,
                self._observations[probe].launches,
                chips,
                isolation=self.runner.zygote.isolation,
            )
            self.timings["machine code"] = time.perf_counter() - start
        return self._demands.get(probe, ())

    def reference_bytes(self, probe: Probe) -> int | None:
        arguments = self.builder.arguments(probe)
        reference = self.builder.make(probe, arguments)()
        given = arguments.copied()
        try:
            with Counting() as counting:
                answer(reference, given)
        except OutsideDomain:
            return None
        peak: int = counting.tally.peak_bytes
        return peak

    def rounding_explains(self, probe: Probe) -> bool:
        observation = self._observations[probe]
        if not observation.answered or self.compare(probe).outcome != "value":
            return False
        return self._compared(probe, observation, LOOSEST).ok

    def homogeneity(self, plain: Probe, scaled: Probe) -> int | None:
        try:
            return degree(self.oracle(plain), self.oracle(scaled), scaled.special)
        except OutsideDomain:
            return None

    def flushed(self, probe: Probe, above: float = 0.0) -> tuple[int, int]:
        try:
            return self.oracle(probe).flushed(self._observations[probe], above)
        except OutsideDomain:
            return 0, 0

    def _regime_of(self, probe: Probe, regime: str) -> str:
        """What is required where the probe replaces the task's dtype follows from the new one."""
        if probe.dtype == "native" or regime == LOOSEST != self.required:
            return regime
        return self.oracle(probe).required

    def _key(self, probe: Probe) -> tuple[Probe, tuple[str, ...], str]:
        """Probes with the same values and the same output bytes are compared once."""
        observation = self._observations[probe]
        digests = (*observation.digests, *observation.state_digests)
        return value_point(probe), digests, self.regime

    def _compared(
        self, probe: Probe, observation: Observation, regime: str, *, confirm: bool = False
    ) -> Comparison:
        promised = self.scene.task.declared
        open_ended = declared.unpromised(promised, probe)
        if open_ended:
            return Comparison(outcome="undecided", reason=open_ended)
        if probe.history and self.reference_moves(probe.without(["history"]), probe):
            return Comparison(
                outcome="undecided", reason="the reference itself keeps state between calls"
            )
        start = time.perf_counter()
        lenient = regime == LOOSEST != self.required
        try:
            oracle = self.oracle(probe)
            accepted = declared.loosened(promised, oracle, observation)
            outsized = self._outsized(probe)
            if outsized:
                accepted = _normal(accepted, oracle)
            found = oracle.compare(accepted, regime, confirm=confirm, lenient=lenient)
            if not found.broken and (observation.finals or observation.state):
                # What the call has left behind is as much its answer as what it returns.
                oracle = self.final_oracle(probe)
                accepted = oracle.left_behind(observation)
                accepted = _normal(accepted, oracle) if outsized else accepted
                left = oracle.compare(accepted, regime, confirm=confirm, lenient=lenient)
                found = found if left.ok else left
            if outsized and found.outcome == "value" and oracle.compare(accepted, LOOSEST).ok:
                return Comparison(
                    outcome="undecided",
                    reason="over so many elements, rounding explains the errors: the gates of "
                    "precision judge them at smaller sizes",
                )
            overflown = lenient and found.outcome == "class" and self.grade.startswith("fp16")
            large = probe.special.startswith(("none", "scaled", "huge"))
            if overflown and large and oracle.outgrows_float16:
                return Comparison(
                    outcome="undecided",
                    reason="a float16 overflows there, and is what the candidate is convicted of",
                )
            if promised.random and found.outcome in ("class", "value"):
                return Comparison(
                    outcome="undecided",
                    reason="the contract declares randomness: values may differ",
                )
            return declared.bound_words(promised, found)
        except OutsideDomain as why:
            return Comparison(outcome="undecided", reason=f"the reference does not answer: {why}")
        finally:
            self.timings["oracle"] = self.timings.get("oracle", 0.0) + time.perf_counter() - start

    def oracle(self, probe: Probe, case: Case | None = None) -> Oracle:
        point = value_point(probe)
        if point in self._oracles:
            self._oracles.move_to_end(point)
            return self._oracles[point]
        arguments = case.arguments if case is not None else self.builder.arguments(point)
        oracle = (
            Oracle(
                self.builder.make(point, arguments),
                arguments,
                # Over so many elements, inputs that are alike may line their errors up.
                generic=is_generic(point) and not self._outsized(point),
                seed=point.seed,
            )
            if point.cotangent == "none"
            else self.builder.gradient_oracle(point, arguments)
        )
        self._oracles[point] = oracle
        if len(self._oracles) > self._kept:
            self._oracles.popitem(last=False)
        return oracle

    def keep(self, oracles: int) -> None:
        """Keeps that many oracles alive, for probes whose values do not follow each other."""
        self._kept = max(oracles, KEPT_ORACLES)

    def final_oracle(self, probe: Probe) -> FinalOracle:
        """Of what the reference leaves in the inputs and the state of a probe.

        Raises:
            OutsideDomain: the reference does not answer.
        """
        point = value_point(probe)
        if point not in self._final_oracles:
            generic = is_generic(point) and not self._outsized(point)
            arguments = self.builder.arguments(point)
            oracle = self.builder.final_oracle(point, arguments, generic=generic)
            self._final_oracles[point] = oracle
            if len(self._final_oracles) > KEPT_ORACLES:
                self._final_oracles.popitem(last=False)
        return self._final_oracles[point]

    def _outsized(self, probe: Probe) -> bool:
        """Whether some size is far beyond those of other probes: neither the base point nor the task has
        it, and no contract declares it."""
        usual = (*self.scene.discovery.base, *self.scene.task.native.items())
        return any(
            n >= OUTSIZED and (name, n) not in usual for name, n in probe.sizes
        ) and not self.scene.is_declared(Probe(sizes=probe.sizes))

    def settle_grade(self) -> None:
        """Finds the strictest regime that the ordinary runs meet, and what is narrow in a candidate that
        is below the required one, there or on runs made to show a narrow accumulator.

        A candidate convicted of a lower precision is convicted of that once; elsewhere only errors
        that no precision explains are another fault.
        """
        ordinary = self.scene.ordinary
        probes = [p for p in (ordinary, replace(ordinary, seed=1)) if self._answers(p)]
        grades = [self.oracle(p).grade(self._observations[p]) for p in probes]
        if not grades:
            return
        ranks = [REGIMES.index(g) if g in REGIMES else len(REGIMES) for g in grades]
        worst = max(ranks)
        self.grade = REGIMES[worst] if worst < len(REGIMES) else "none"
        below = worst > REGIMES.index(self.required)
        asked = "narrow-accumulator" in self._asked
        if (asked and (below or self._in_half())) or (below and self.grade != "none"):
            self.grade = self._narrow_sums(probes) or (
                self.grade if self.grade == "none" or not below else self._named(probes)
            )
        # The grade is never widened by the reference's own error, a conviction is: only the latter
        # loosens what the rest is held to.
        if self.below_required() is not None:
            self.regime = LOOSEST

    def _in_half(self) -> bool:
        return self.oracle(self.scene.ordinary).dtype in (torch.float16, torch.bfloat16)

    def _narrow_sums(self, probes: list[Probe]) -> str:
        """The regime of accumulators that lose part of what they are fed, all of which is short; "" if
        none is seen to. Which of them a sum tells that needs more than 8 bits, and no more than 11."""
        redrawable = self.builder.by_name or not self.scene.task.parameters
        told = lost = False
        found: list[Sequence[Probe]] = [*trials(self.scene)] if redrawable else []
        if self._in_half() and (long := swamped(self.scene)):
            found.append(long)
        found.append(steps(self.scene))
        together = tied(self.scene) if redrawable else []
        found += self._behind_a_mask() if redrawable else []
        while found:
            control, *harder = found.pop(0)
            self.run([control, *harder])
            if not self._holds(control):
                # Perhaps since one size alone was made long.
                found, together = [*found, *together], []
                continue
            for probe in filter(self._answers, harder):
                if not self._loses(probe):
                    # In half precision, one rounding to 8 bits shows only where the answer is exact.
                    swamps = probe.distribution in SWAMPED
                    shows = swamps or not self._in_half() or self.compare_exact(probe) is not None
                    told = told or (shows and self._tells(probe))
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
        return own.get(self.oracle(self.scene.ordinary).dtype) or (
            self._first_of(NARROW_SUMS, probes, "sums") or LOOSEST
        )

    def _narrow_weights(self) -> str:
        """The regime of accumulators that lose weights of a softmax; "" if none is seen to."""
        seen = told = False
        for weighing in diluted(self.scene):
            trial, shown, together = weighing
            if not self.oracle(self.scene.ordinary).weighs or (together and seen):
                break
            self.run(shown)
            looked_at = [p for p in shown if self._answers(p)]
            lost = next((p for p in looked_at if self._loses(p)), None)
            if lost is None:
                shows = self._shows(weighing)
                seen, told = seen or shows, told or (shows and trial.eight in looked_at)
                continue
            self.run([trial.control] if told else [trial.control, trial.eight])
            if not self._holds(trial.control):
                continue
            self.losing = lost
            eight = not told and self._answers(trial.eight) and self._loses(trial.eight)
            return "bf16xbf16" if eight else "fp16xfp16"
        return ""

    def _behind_a_mask(self) -> list[Trial]:
        """Parts among values, for attention that does not see all of them while the keys alone are long:
        a causal mask leaves those behind all queries out."""
        weighings = diluted(self.scene) if self.oracle(self.scene.ordinary).weighs else []
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
            with_them, alone = (self.oracle(p).exact for p in (trial.eleven, trial.control))
        except OutsideDomain:
            return False
        return any(
            bool(((b.data > 1 - _NEARLY) & (a.data < 1 - MOVED)).any())
            for a, b in zip(with_them, alone, strict=True)
        )

    def _tells(self, probe: Probe) -> bool:
        """Whether 11 bits hold every sum there, and 8 do not."""
        try:
            oracle = self.oracle(probe)
        except OutsideDomain:
            return False
        if probe.distribution in _EIGHT_PARTS and not oracle.isolates_sums:
            return any(mask.any() for mask in self._isolated(probe))
        return oracle.isolates_sums and EIGHT <= oracle.sum_bits <= ELEVEN_BITS

    def _holds(self, probe: Probe) -> bool:
        """Whether nothing is wrong on a run where nothing can be lost."""
        if not self._answers(probe):
            return False
        found = self.compare_exact(probe) or self._where_isolated(probe)
        return (found or self.compare_required(probe)).ok

    def _loses(self, probe: Probe) -> bool:
        if probe.distribution in DILUTED.values():
            # The weights have more bits than factors may have.
            return _beyond(self.compare_gap(probe)) and self._beyond_factors(probe)
        exactly = self.compare_exact(probe)
        if exactly is not None:
            return exactly.broken
        if not self._isolates(probe):
            somewhere = self._where_isolated(probe)
            return somewhere is not None and _beyond(somewhere)
        if probe.distribution in SWAMPED:
            return _beyond(self.compare_gap(probe))
        # A factor in float16 may have overflown as well as a sum in it.
        outgrown = not self._in_half() and self.oracle(probe).outgrows_float16
        return not outgrown and _beyond(self.compare_required(probe))

    def _where_isolated(self, probe: Probe) -> Comparison | None:
        """The comparison of those elements of a float32 answer that are made of short factors alone, and
        others are not: of rows of attention in which a causal mask leaves a power of two of keys."""
        if self._in_half() or probe.distribution not in PARTS.values() or self._isolates(probe):
            return None
        masks = self._isolated(probe)
        if not any(mask.any() for mask in masks):
            return None
        oracle = self.oracle(probe)
        if oracle.outgrows_float16:
            return None
        return oracle.compare_gap(_only(self._observations[probe], oracle, masks), self.required)

    def _isolated(self, probe: Probe) -> list[npt.NDArray[np.bool_]]:
        """Where bfloat16 holds an element and all that it is made of."""
        try:
            return self.oracle(replace(probe, dtype="bfloat16")).owed
        except OutsideDomain:
            return []

    def _beyond_factors(self, probe: Probe) -> bool:
        """Whether an error is larger than any that narrow factors make: of 11 bits, unless the candidate
        is seen to read 8."""
        eight = self.required == "bf16xfp32" or self._reads_eight()
        name = "bf16xfp32" if eight else "tf32"
        try:
            return _beyond(
                self.oracle(probe).compare_gap(self._observations[probe], name, "factors")
            )
        except OutsideDomain:
            return False

    def _named(self, probes: list[Probe]) -> str:
        """What is narrow in a candidate below the required grade whose accumulators have lost nothing
        that was made to show it; the grade as it is where no regime of one kind holds."""
        isolating = [self._on_short_factors(name) for name in SUMS]
        self.run(isolating)
        for probe in isolating:
            if not self._answers(probe) or not self._isolates(probe):
                continue
            if _beyond(self.compare_required(probe)):
                held = held_in(self._observations[probe])
                return held or self._first_of(NARROW_SUMS, probes, "sums") or self.grade
        return self._first_of(self._factors(), probes, "factors") or self.grade

    def _factors(self) -> tuple[str, ...]:
        """Which regimes of NARROW_FACTORS come into question: one of 8 bits is told from those of 11 by
        values of ten, one that float16 is used for by values beyond its range."""
        if self._reads_eight():
            return ("bf16xfp32",)
        floats = [s for s in self.scene.task.inputs if s.dtype == "float32"]
        beyond = [
            replace(self.scene.ordinary, special=f"scaled:{max(SCALES)}@{i}")
            for i in range(min(len(floats), DRAWS))
        ]
        self.run(beyond)
        overflows = any(self._out_of_range(p) for p in beyond if self._answers(p))
        return ("fp16xfp32",) if overflows else NARROW_FACTORS

    def _reads_eight(self) -> bool:
        tens = [replace(self.scene.ordinary, distribution=name) for name in TENS]
        self.run(tens)
        return any(self._lacks_tens(p) for p in tens if self._answers(p))

    def _out_of_range(self, probe: Probe) -> bool:
        """Whether values are infinite, or what an infinity is divided into is gone."""
        return self.compare_required(probe).outcome == "class" or self._lacks_tens(probe)

    def _lacks_tens(self, probe: Probe) -> bool:
        """Whether an error is larger than any that factors of 11 bits make."""
        try:
            return self.oracle(probe).exceeds(self._observations[probe], "tf32", "factors")
        except OutsideDomain:
            return False

    def _first_of(self, names: tuple[str, ...], probes: list[Probe], narrow: str) -> str:
        grades = [self.oracle(p).grade(self._observations[p], names, narrow) for p in probes]
        return "" if "none" in grades else max(grades, key=names.index)

    def _on_short_factors(self, distribution: str) -> Probe:
        by_name = bool(self.scene.task.parameters) and self.builder.by_name
        weights = "lattice" if by_name else "seeded"
        return replace(self.scene.ordinary, distribution=distribution, weights=weights)

    def _of_precision(self, probe: Probe) -> str:
        asked = "narrow-accumulator" in self._asked
        return "narrow-accumulator" if asked and self._sums(probe) else "wrong-value"

    def _sums(self, probe: Probe) -> bool:
        try:
            return self.oracle(probe).sums
        except OutsideDomain:
            return False

    def _isolates(self, probe: Probe) -> bool:
        try:
            return self.oracle(probe).isolates_sums
        except OutsideDomain:
            return False

    def below_required(self) -> Finding | None:
        """The conviction of a candidate below the required grade: of `narrow-accumulator`, or of
        `wrong-value` where nothing is summed or multiplied, or the former was not asked."""
        if self.grade == "none" or REGIMES.index(self.grade) <= REGIMES.index(self.required):
            return None
        return self._below_ordinarily() or self._below_where_lost()

    def _below_where_lost(self) -> Finding | None:
        """By the run on which an accumulator was seen to lose something."""
        if self.losing is None:
            return None
        observation = self._observations[self.losing]
        if self.losing.distribution in GAPPED:
            c = self.compare_gap(self.losing)
        else:
            c = self.compare_exact(self.losing) or self.compare_required(self.losing)
        violation = replace(
            compared_violation(self.losing, observation, c),
            signature="narrow",
            message=f"sums are kept in less than float32: the precision met is {self.grade}",
        )
        return Finding(
            gate=self._of_precision(self.losing),
            outcome=Outcome.VIOLATION,
            reason=violation.message,
            scope=scope_of(self.scene, self.losing),
            exact=True,
            violation=violation,
            probes=len(self._observations),
        )

    def _below_ordinarily(self) -> Finding | None:
        ordinary = self.scene.ordinary
        for probe in (ordinary, replace(ordinary, seed=1)):
            if not self._answers(probe):
                continue
            observation = self._observations[probe]
            c = self._compared(probe, observation, self.required, confirm=True)
            if not c.broken:
                continue
            violation = replace(
                compared_violation(probe, observation, c),
                signature="precision",
                message=f"meets only {self.grade}, where the task requires {self.required}",
            )
            return Finding(
                gate=self._of_precision(probe),
                outcome=Outcome.VIOLATION,
                reason=violation.message,
                scope=self._precision_scope(probe),
                violation=violation,
                probes=len(self._observations),
            )
        return None

    def _precision_scope(self, probe: Probe) -> Scope:
        native = self.scene.native
        if native is None:
            # Rounding does not go away at a larger size.
            return Scope.DECLARED
        if self._answers(native):
            observation = self._observations[native]
            if self._compared(native, observation, self.required).broken:
                return Scope.DECLARED
        return scope_of(self.scene, probe)

    def _answers(self, probe: Probe) -> bool:
        observation = self._observations.get(probe)
        return observation is not None and observation.answered

    def reference_aliases(self, probe: Probe) -> bool:
        if self.scene.task.declared.in_place:
            # An output may then be the argument itself.
            return True
        point = probe.without(_WITHOUT_ALIASES)
        if point not in self._aliases:
            try:
                self._aliases[point] = self.builder.hands_on(point)
            except OutsideDomain:
                self._aliases[point] = True
        return self._aliases[point]

    def reference_moves(self, probe: Probe, other: Probe) -> bool:
        owed = declared.owes_bits(self.scene.task.declared, probe, other)
        if owed is not None:
            return not owed
        try:
            moved = self._bits(probe) != self._bits(other)
        except OutsideDomain:
            return True
        return moved or bool(self._varying[probe])

    def _bits(self, probe: Probe) -> tuple[str, ...]:
        """Digests of the native reference's outputs under the probe's own perturbation."""
        if probe not in self._native_bits:
            # What the reference's own operations do on a GPU is not seen on a CPU, but is documented.
            varying = Varying()
            with varying if self.scene.runner == "cuda" else contextlib.nullcontext():
                self._native_bits[probe] = self._native_run(probe)
            self._varying[probe] = varying.names
        return self._native_bits[probe]

    def _native_run(self, probe: Probe) -> tuple[str, ...]:
        arguments = self.builder.arguments(probe)
        reference = self.builder.make(probe, arguments)()
        for name in probe.history:
            earlier = arguments
            if name in ("other", "in-place"):
                earlier = self.builder.arguments(replace(probe, seed=probe.seed + 1))
            answer(reference, earlier.copied())
        given = arguments.copied()
        result = answer(reference, given)
        found = arrays.tensors_in(result)
        written = self.builder.habits(probe, arguments).writes
        found += [(name, t) for name, t in given.tensors() if name in written]
        if not probe.history:
            found += [(name, t) for name, t in state_of(reference) if name in written]
        if probe.cotangent != "none":
            found = self.builder.pulled(probe, reference, arguments)
        return tuple(
            f"{t.dtype}{tuple(t.shape)}{hash(arrays.to_numpy(t).tobytes())}" for _, t in found
        )


class View:
    """A docket seen from another base point: the same runs, and only those named."""

    def __init__(self, docket: Docket, scene: Scene, only: Iterable[Probe]) -> None:
        self._docket = docket
        self._scene = scene
        self._only = {p: docket.observations[p] for p in only if p in docket.observations}

    @property
    def scene(self) -> Scene:
        return self._scene

    @property
    def observations(self) -> Mapping[Probe, Observation]:
        return self._only

    @property
    def skipped(self) -> Mapping[Probe, str]:
        return self._docket.skipped

    @property
    def device(self) -> str:
        return self._docket.device

    def compare(self, probe: Probe) -> Comparison:
        return self._docket.compare(probe)

    @property
    def grade(self) -> str:
        return self._docket.grade

    def compare_required(self, probe: Probe) -> Comparison:
        return self._docket.compare_required(probe)

    def compare_exact(self, probe: Probe) -> Comparison | None:
        return self._docket.compare_exact(probe)

    def compare_gap(self, probe: Probe) -> Comparison:
        return self._docket.compare_gap(probe)

    def demands(self, probe: Probe) -> tuple[Demand, ...]:
        return self._docket.demands(probe)

    def reference_bytes(self, probe: Probe) -> int | None:
        return self._docket.reference_bytes(probe)

    def rounding_explains(self, probe: Probe) -> bool:
        return self._docket.rounding_explains(probe)

    def homogeneity(self, plain: Probe, scaled: Probe) -> int | None:
        return self._docket.homogeneity(plain, scaled)

    def flushed(self, probe: Probe, above: float = 0.0) -> tuple[int, int]:
        return self._docket.flushed(probe, above)

    def below_required(self) -> Finding | None:
        return self._docket.below_required()

    def reference_aliases(self, probe: Probe) -> bool:
        return self._docket.reference_aliases(probe)

    def reference_moves(self, probe: Probe, other: Probe) -> bool:
        return self._docket.reference_moves(probe, other)


def _beyond(comparison: Comparison) -> bool:
    return comparison.outcome == "value" and comparison.beyond_worst_case


def _normal(observation: Observation, oracle: Oracle) -> Observation:
    """The observation with the reference's own values where the truth and the answer are too small for a
    normal number of their dtype: among so many elements some are, and whether they may become zero is
    the matter of another gate at any size."""
    if len(observation.outputs) != len(oracle.native):
        return observation
    outputs = []
    for output, native, exact in zip(observation.outputs, oracle.native, oracle.exact, strict=True):
        dtype = arrays.torch_dtype(output.dtype)
        fits = native.dtype == output.dtype and native.data.shape == output.data.shape
        if dtype.is_floating_point and fits:
            least = float(torch.finfo(dtype).tiny)
            got, truth = output.data.astype(np.float64), exact.data.astype(np.float64)
            small = (np.abs(got) <= least) & (np.abs(truth) <= least)
            output = replace(output, data=np.where(small, native.data, output.data))
        outputs.append(output)
    return replace(observation, outputs=tuple(outputs))


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


def _too_large(observation: Observation) -> str:
    """Why a run at an outsized point says nothing about the candidate, "" if it does: there, no answer
    may be a want of time or memory."""
    raised = observation.raised
    if raised is not None and "memory" in f"{raised.type} {raised.message}".lower():
        return f"too little memory: {raised.message}"[:200]
    if observation.answered or observation.status is Status.RAISED:
        return ""
    return f"no answer ({observation.ending or observation.status}), which may be for its size"


def _size(probe: Probe) -> int:
    return prod(max(1, size) for _, size in probe.sizes)


def value_point(probe: Probe) -> Probe:
    """The probe whose inputs hold the same values: what has one oracle."""
    plain = probe.without(_VALUE_FREE)
    if plain.cotangent in SAME_VALUES:
        plain = replace(plain, cotangent="random")
    return plain.without(["layout"]) if probe.layout in _VALUE_FREE_LAYOUTS else plain
