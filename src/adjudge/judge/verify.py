"""One candidate, all gates, one verdict."""

from __future__ import annotations

import platform
import time
import warnings
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import zip_longest
from math import prod
from typing import Any

from adjudge import __version__
from adjudge.contract import (
    Finding,
    Outcome,
    Provenance,
    Scope,
    Standing,
    Verdict,
    standing_of,
)
from adjudge.contracts import against
from adjudge.contracts.file import ContractFile
from adjudge.contracts.promises import promises
from adjudge.contracts.terms import Terms
from adjudge.contracts.waivers import Waivers, waived
from adjudge.errors import NestedVerdict, UsageError
from adjudge.frontends.examine import RANDOM, examine
from adjudge.gates import GATES, gate
from adjudge.gates.protocol import Evidence, Gate, Scene
from adjudge.gates.reading import State, first_line, state, undecided_reason
from adjudge.gates.shape_dependent import ELEMENTS
from adjudge.inputs.levels import FILLS
from adjudge.judge import fast, lacking, lanes, leaks, refused, scale, shrink
from adjudge.judge.declared import (
    DeclaredScene,
    Governed,
    decide,
    promised_points,
    within_ranges,
)
from adjudge.judge.digest import gates_digest
from adjudge.judge.docket import BEYOND, Docket
from adjudge.judge.planning import crossed
from adjudge.judge.runner import Runner
from adjudge.judge.scout import FIRST_SECONDS, Scouted, scout
from adjudge.judge.specialisations import MOST, Few, tails
from adjudge.observation import Status
from adjudge.oracle import REGIMES
from adjudge.probe import Probe, Sizes, sizes_of
from adjudge.program import OutsideDomain, Program
from adjudge.static.chips import Chip
from adjudge.static.hints import hints
from adjudge.task import Candidate, Launch, Task
from adjudge.worker.client import Zygote

#: Seconds one run may take before it counts as no answer. Ordinary runs in the interpreter take
#: milliseconds; the slowest honest kernels of a published corpus, at shrunken shapes, under two.
RUN_SECONDS = 10.0

#: Seconds of a run grow with this power of its elements (a matrix product's are their 3/2), and may be
#: so many times as long as that before a candidate that hangs at the declared shape is no mere slow one.
GROWTH, SLACK = 1.5, 4.0

#: The gate that answers for sizes.
BY_SIZE = "shape-dependent"

Progress = Callable[[str, int, int], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    #: Seconds for all probes together, or None for the whole battery.
    budget: float | None = None
    #: Stop at the first violation that no waiver accepts.
    fast: bool = False
    #: Identifiers of the gates to run; None runs all.
    gates: tuple[str, ...] | None = None
    #: "full" or "none" (trusted code in your own process tree; marked in the verdict).
    isolation: str = "full"
    #: Precision regime required; "" derives it from the reference.
    required: str = ""
    scope: Scope = Scope.EXTENDED
    progress: Progress | None = None
    #: Where candidates run: "interpret", or "cuda" for the first GPU.
    runner: str = "interpret"
    #: Processes that run the probes of one candidate at once. More than one only where this process may
    #: fork: it has run nothing in parallel, and sees no GPU.
    lanes: int = 1
    #: On a GPU, for how many kinds of arguments the kernels of one candidate may be compiled; 0 is any
    #: number. What would be compiled beyond that is not run, and the findings say so.
    specialisations: int = MOST
    #: A running zygote to use; otherwise one is started and closed.
    zygote: Zygote | None = None
    timeout: float = RUN_SECONDS
    #: Extra seconds-consuming check of the task itself (constant output, randomness, ...).
    examine: bool = True
    #: "cuda" answers as a GPU would; "cpu" is for plain torch programs that want the real CPU.
    face: str = "cuda"
    #: Lets the candidate start a compiler (`torch.compile`).
    allow_compiler: bool = False
    #: What the candidate is held to beyond its reference, and excused from.
    contract: ContractFile | None = None
    #: Violations that are accepted, as of `waivers.today`.
    waivers: Waivers | None = None
    #: Program instances that a run past 2**16 rows may launch in the interpreter; 0 makes no such run.
    large: int = scale.INSTANCES
    #: Also run the candidate under compute-sanitizer: on a GPU, and without a sandbox.
    deep: bool = False
    #: Ask the compilers whether they accept the kernels at all, where no GPU does; a kernel that none
    #: accepts is no answer.
    compiled: bool = False
    #: Chips whose limits the machine code is held against; what it asks for is noted, and no verdict.
    chips: tuple[Chip, ...] = ()


def verify(program: Program, candidate: Candidate, options: Options | None = None) -> Verdict:
    """The verdict on `candidate` against `program`.

    Raises:
        UsageError: an unknown gate or regime is named, the budget is not positive, the contract does not
            fit the reference, or the candidate cannot be loaded for a reason that is not its own.
        HarnessError: the machine cannot run a worker.
    """
    options = options or Options()
    if options.required and options.required not in REGIMES:
        raise UsageError(
            f"there is no precision regime named {options.required!r}",
            todo=f"Choose one of {', '.join(REGIMES)}.",
        )
    if options.budget is not None and not options.budget > 0:
        raise UsageError(f"a budget of {options.budget:g} seconds allows no probe")
    gates = tuple(gate(name) for name in options.gates) if options.gates else GATES
    start = time.perf_counter()
    if options.contract is not None:
        program, gates, options = governed(program, gates, options, options.contract)
    with running(candidate, options) as runner:
        _check_loaded(candidate, runner)
        return _Trial(program, candidate, options, gates, runner, start).verdict()


def _check_loaded(candidate: Candidate, runner: Runner) -> None:
    """Raises UsageError: the candidate's file needs what is not here, or judges itself."""
    _, reply = runner.loaded()
    if reply.observation is None:
        return
    absent = lacking.absent_package(candidate, reply.observation)
    if absent is not None:
        raise absent
    raised, where = reply.observation.raised, candidate.path or candidate.name
    if raised is not None and raised.type == NestedVerdict.__name__:
        raise UsageError(
            "the candidate's file calls adjudge.verify while it is loaded",
            where=where,
            todo='Put that call under `if __name__ == "__main__":`; the file is loaded again in a '
            "process of its own.",
        )


def governed(
    program: Program, gates: tuple[Gate, ...], options: Options, contract: ContractFile
) -> tuple[Program, tuple[Gate, ...], Options]:
    """The program, the gates and the options under a contract.

    Raises:
        UsageError: the contract does not fit the reference, requires another regime than the options,
            or is measured by none of the gates.
    """
    with _one_thread(), _quiet():
        against.check(contract, program)
    declared = contract.declared
    if options.required and declared.regime not in ("", options.required):
        raise contract.file.mistake(
            ["tolerance", "regime"],
            f"requires {declared.regime}, and --required asks for {options.required}",
            todo="Drop one of them.",
        )
    named = contract.terms.measurement.gates
    measuring = tuple(g for g in gates if not named or g.CONTRACT.identifier in named)
    if not measuring:
        raise contract.file.mistake(
            ["measurement", "gates"],
            f"none of {', '.join(named)} is among the gates to run",
            todo="Wait for them, or name others.",
        )
    required = options.required or declared.regime
    return Governed(program, declared), measuring, replace(options, required=required)


@contextmanager
def running(candidate: Candidate, options: Options) -> Iterator[Runner]:
    """A runner for the candidate, and torch in the state in which judges compare: a verdict and its
    replay must not differ in it."""
    with (
        _one_thread(),
        _quiet(),
        _zygote(options) as zygote,
        Runner(zygote, candidate, timeout=options.timeout, lanes=options.lanes) as runner,
    ):
        yield runner


@contextmanager
def _zygote(options: Options) -> Iterator[Zygote]:
    if options.zygote is not None:
        yield options.zygote
        return
    with Zygote.start(
        isolation=options.isolation,
        face=options.face,
        allow_compiler=options.allow_compiler,
        runner=options.runner,
    ) as zygote:
        yield zygote


@contextmanager
def _quiet() -> Iterator[None]:
    """What torch warns of at empty or unusual shapes is no news to the user."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


@contextmanager
def _one_thread() -> Iterator[None]:
    """Probes are small, and handing their loops to a pool of threads costs more than it saves; the
    second core belongs to the worker."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


class _Trial:
    """The course of one verdict: scout, plan, run, decide, shrink."""

    def __init__(
        self,
        program: Program,
        candidate: Candidate,
        options: Options,
        gates: tuple[Gate, ...],
        runner: Runner,
        start: float,
    ) -> None:
        self.program = program
        self.candidate = candidate
        self.options = options
        self.gates = gates
        self.runner = runner
        self.start = start
        self.timings: dict[str, float] = {}
        #: Probes that several gates asked for, and that were run once.
        self.shared = 0

    def verdict(self) -> Verdict:
        from adjudge.symbols import shrunken

        self._say("scouting", 0, 1)
        with self._timed("reference"):
            doubts = self._examine()
            base = sizes_of(shrunken(self.program))
        if RANDOM in doubts and not self.program.task.declared.random:
            return self._no_verdict(RANDOM, doubts)
        try:
            with self._timed("scout"):
                # What a compiler takes at first says nothing about the size.
                slow = self.options.allow_compiler or self.options.runner == "cuda"
                first = self.options.timeout if slow else FIRST_SECONDS
                scouted = scout(self.program, base, self.runner, first_seconds=first)
        except OutsideDomain as why:
            return self._no_verdict(f"the reference does not answer: {why}", doubts)
        if scouted.no_native:
            doubts = (*doubts, f"the native shape was not run: {scouted.no_native}")
        absent = lacking.absent_package(self.candidate, scouted.ordinary)
        if absent is not None:
            raise absent
        elsewhere = lacking.gpu(self.candidate, scouted.ordinary, self.options.runner)
        if elsewhere:
            verdict = self._no_verdict(elsewhere, doubts, Outcome.NOT_APPLICABLE)
            return self._compiled_at_least(verdict)
        docket = self._docket(scouted)
        docket.few = self._few(docket.scene)
        if self.options.fast and not scouted.discovery.weights.startswith("unmatched"):
            with self._timed("first violation"):
                found = fast.first_violation(docket, self.gates, _confirmed, self._accepted)
            if found:
                with self._timed("fresh processes"):
                    findings = leaks.attributed(docket, self._alone(found))
                return self._assemble(docket, findings, doubts)
        sized = None
        # The next candidate's contexts are opened while this one's kernels compile: its own are open.
        self.runner.zygote.prepare()
        with self._timed("probes"):
            planned = self._plan(docket)
            if self.options.lanes > 1:
                sized = lanes.run(docket, planned, self.options.lanes, self._at_scale)
            else:
                docket.run(planned, self.options.progress, "probing")
        # A run past 2**16 rows takes long enough to be made beside the others.
        notes = scale.upheld(docket, sized or self._at_scale(docket))
        with self._timed("attribution"):
            docket.close_reductions()
        findings = self._decided(docket, scouted)
        findings = tuple(
            replace(f, notes=(*f.notes, *notes))
            if f.gate == BY_SIZE and f.outcome is Outcome.PASS
            else f
            for f in findings
        )
        with self._timed("fresh processes"):
            findings = leaks.attributed(docket, findings)
        if self.options.deep:
            from adjudge.deep.run import examined

            with self._timed("compute-sanitizer"):
                findings = examined(docket, findings)
        if self.options.chips:
            with self._timed("machine code"):
                findings = self._with_demands(findings, self._launched(docket))
        if self._asks_compilers():
            launches = refused.launches_at_native(self.program, docket.builder, self.runner)
            findings = self._by_compilers(findings, launches)
        return self._assemble(docket, findings, doubts)

    def _asks_compilers(self) -> bool:
        """Whether compilers are asked what they accept: not where a GPU runs what they make of it."""
        asked = self.options.compiled or bool(self.program.task.declared.resources.chips)
        answers = any(g.CONTRACT.identifier == refused.GATE for g in self.gates)
        return asked and answers and self.options.runner != "cuda"

    def _by_compilers(
        self, findings: tuple[Finding, ...], launches: tuple[Launch, ...]
    ) -> tuple[Finding, ...]:
        self._say("asking the compiler", 0, 1)
        with self._timed("compiler"):
            violation, notes = refused.held(
                self.program, self.candidate, launches, isolation=self.options.isolation
            )
        return refused.noted(refused.convicted(findings, violation), notes)

    def _compiled_at_least(self, verdict: Verdict) -> Verdict:
        """The verdict on what cannot be run here, with what a compiler says of it."""
        findings = verdict.findings
        if self.options.chips:
            findings = self._with_demands(findings, ())
        if self._asks_compilers():
            findings = self._by_compilers(findings, ())
        if self.options.waivers is not None:
            findings = waived(findings, self.options.waivers, self.candidate.name)
        broken = any(f.outcome is Outcome.VIOLATION for f in findings)
        standing = standing_of(findings) if broken else verdict.standing
        return replace(verdict, findings=findings, standing=standing)

    def _accepted(self, finding: Finding) -> bool:
        """Whether a waiver accepts the violation."""
        waivers = self.options.waivers
        return waivers is not None and bool(
            waived((finding,), waivers, self.candidate.name)[0].waived
        )

    def _alone(self, found: tuple[Finding, ...]) -> tuple[Finding, ...]:
        by_gate = {f.gate: replace(f, runner=self.options.runner) for f in found}
        return tuple(by_gate.get(g.CONTRACT.identifier) or fast.left_out(g) for g in self.gates)

    def _at_scale(self, docket: Docket) -> scale.Asked:
        """Runs past 2**16 rows, where the gate of sizes is asked."""
        if all(g.CONTRACT.identifier != BY_SIZE for g in self.gates) or not self.options.large:
            return scale.Asked()
        start = time.perf_counter()
        asked = scale.ask(docket, instances=self.options.large)
        docket.timings["scale"] = time.perf_counter() - start
        return asked

    def _examine(self) -> tuple[str, ...]:
        warnings = self.program.task.warnings
        if not self.options.examine:
            return warnings
        return (*warnings, *examine(self.program))

    def _docket(self, scouted: Scouted) -> Docket:
        ordinary = Probe(sizes=scouted.discovery.base)
        scene = scene_of(self.program, self.candidate, scouted, self.options)
        deadline = None
        if self.options.budget is not None:
            deadline = time.monotonic() + self.options.budget
        required = self.options.required
        docket = Docket(
            scene,
            scouted.builder,
            self.runner,
            required=required,
            deadline=deadline,
            asked={g.CONTRACT.identifier for g in self.gates},
        )
        for case, observation in scouted.runs:
            docket.record(case, observation)
        docket.run([ordinary, replace(ordinary, seed=1)])
        with self._timed("grade"):
            docket.settle_grade()
        return docket

    def _plan(self, docket: Docket) -> list[Probe]:
        made = docket.observations
        asked = [set(g.plan(docket.scene)) for g in self.gates]
        self.shared = sum(map(len, asked)) - len(set().union(*asked))
        plans = {
            g.CONTRACT.identifier: [p for p in g.plan(docket.scene) if p not in made]
            for g in sorted(self.gates, key=_cost)
        }
        # One of each gate, so that a time budget starves none of them; then the cheap and decisive
        # gates, those of one cost in turn.
        planned = [plan[0] for plan in plans.values() if plan]
        for cost in sorted({_cost(g) for g in self.gates}):
            equals = [plans[g.CONTRACT.identifier][1:] for g in self.gates if _cost(g) == cost]
            planned += [p for turn in zip_longest(*equals) for p in turn if p is not None]
        if docket.scene.ordinary in docket.observations:
            planned += docket.scene.crossed
            planned += [p.without(["fill"]) for p in docket.scene.crossed if p.fill in FILLS[1:]]
            planned += [p.without(["history"]) for p in docket.scene.crossed if p.history]
        planned += _promised(docket.scene)
        # The dear runs last: a time budget should not be spent on them.
        native, base = docket.scene.discovery.native, docket.scene.discovery.base
        return sorted(planned, key=lambda probe: probe.sizes == native != base)

    def _few(self, scene: Scene) -> Few | None:
        """Which runs are made where compiling is dear; None makes all."""
        if self.options.runner != "cuda" or not self.options.specialisations:
            return None
        plain = [p for p in (scene.ordinary, scene.native) if p is not None]
        plans = {g.CONTRACT.identifier: list(g.plan(scene)) for g in self.gates}
        always = [*plain, *_promised(scene), *tails(scene, plans.get(BY_SIZE, ()))]
        return Few(scene, plans.values(), always, self.options.specialisations)

    def _decided(self, docket: Docket, scouted: Scouted) -> tuple[Finding, ...]:
        """The findings of all gates, each violation made small."""
        found = {g: self._decide(docket, scouted, g) for g in self.gates}
        known = frozenset(docket.observations)
        broken = [g for g in self.gates if found[g].violation is not None]

        def settled(g: Gate) -> Callable[[Docket], Finding]:
            return lambda docket: self._settled(docket, g, found[g], known)

        settling = lanes.each(docket, [settled(g) for g in broken], self.options.lanes)
        found |= dict(zip(broken, settling, strict=True))
        self.timings |= {f.gate: f.seconds for f in found.values()}
        return tuple(
            replace(_within_the_runner(docket, f), runner=self.options.runner)
            for f in found.values()
        )

    def _decide(self, docket: Docket, scouted: Scouted, g: Gate) -> Finding:
        name = g.CONTRACT.identifier
        self._say(f"deciding {name}", 0, 1)
        begun = time.perf_counter()
        if scouted.discovery.weights.startswith("unmatched"):
            finding = Finding(
                gate=name,
                outcome=Outcome.INCONCLUSIVE,
                reason=f"weights {scouted.discovery.weights}",
            )
        else:
            finding = _confirmed(docket, g, docket)
        return replace(finding, seconds=time.perf_counter() - begun)

    def _settled(
        self, docket: Docket, g: Gate, finding: Finding, known: Collection[Probe]
    ) -> Finding:
        begun = time.perf_counter()
        settled = shrink.settle(docket, g, finding, known)
        seconds = finding.seconds + time.perf_counter() - begun
        return replace(settled, seconds=seconds)

    def _launched(self, docket: Docket) -> tuple[Launch, ...]:
        """Kernels of the largest run that launched any."""
        scene = docket.scene
        runs = [docket.observations.get(p) for p in (scene.native, scene.ordinary) if p is not None]
        return next((run.launches for run in runs if run is not None and run.launches), ())

    def _with_demands(
        self, findings: tuple[Finding, ...], launches: tuple[Launch, ...]
    ) -> tuple[Finding, ...]:
        """What the kernels ask of each chip, as notes on the gate of resources."""
        from adjudge.judge.machine import demands

        self._say("compiling", 0, 1)
        asked = demands(
            self.candidate.source, launches, self.options.chips, isolation=self.options.isolation
        )
        return tuple(
            replace(f, notes=(*f.notes, *(d.words for d in asked)))
            if f.gate == "resource-excess"
            else f
            for f in findings
        )

    def _assemble(
        self,
        docket: Docket,
        findings: tuple[Finding, ...],
        warnings: tuple[str, ...],
    ) -> Verdict:
        observations = docket.observations.values()
        # What nobody asked for and nobody offered is no refusal.
        owed = docket.scene.discovery.gradients or docket.scene.task.declared.training
        refusals = {
            f"{o.raised.type}: {o.raised.complaint or first_line(o.raised.message)}"
            for p, o in docket.observations.items()
            if o.raised and (owed or p.cotangent == "none")
        }
        stdout = next((o.stdout for o in observations if o.stdout), "")
        starved = {g.CONTRACT.identifier: _starved(docket, g) for g in self.gates}
        left_out = [name for name, (over, asked) in starved.items() if asked and over == asked]
        native = docket.scene.native
        if native is not None and docket.skipped.get(native, "").startswith("budget"):
            left_out.append("the declared shape")
        findings = tuple(_on_budget(f, *starved[f.gate]) for f in findings)
        findings = tuple(_on_compiling(f, *_uncompiled(docket, f.gate)) for f in findings)
        if left_out:
            words = f"the time allowed leaves out {', '.join(left_out)}"
            warnings = (*warnings, f"{words}; allow more to have a verdict")
        elif any(over for over, _ in starved.values()):
            over = sum(why.startswith("budget") for why in docket.skipped.values())
            words = f"{over} of {over + len(docket.observations)} probes"
            warnings = (
                *warnings,
                f"the time allowed leaves out {words}, of every gate some are made",
            )
        if self.options.waivers is not None:
            findings = waived(findings, self.options.waivers, self.candidate.name)
        undecided, excused = self._undecided_at_native(docket)
        if undecided:
            warnings = (*warnings, f"the declared shape could not be decided: {undecided}")
        return Verdict(
            name=self.candidate.name,
            standing=standing_of(
                findings, undecided=bool(left_out) or (bool(undecided) and not excused)
            ),
            findings=findings,
            grade=docket.grade,
            required=docket.required,
            provenance=self._provenance(docket.scene.discovery.weights),
            warnings=warnings,
            refusals=tuple(sorted(refusals))[:10],
            contract=self._contract.identifier if self._contract is not None else "",
            promises=promises(self._contract) if self._contract is not None else (),
            hints=hints(self.candidate.source),
            stdout=stdout,
            probes=len(docket.observations),
            shared=self.shared,
            seconds=time.perf_counter() - self.start,
            timings=tuple(sorted({**self.timings, **docket.timings, **self._waits()}.items())),
        )

    def _waits(self) -> dict[str, float]:
        waits = {"runs": self.runner.seconds, "workers": self.runner.waited}
        return waits | {"compiling": self.runner.compiling} if self.runner.compiled else waits

    def _undecided_at_native(self, docket: Docket) -> tuple[str, bool]:
        """Why a run at the declared shape says nothing ("" if it does, or was not made), and whether
        it may merely be too slow for this runner, by what the small shape takes."""
        probe, discovery = docket.scene.native, docket.scene.discovery
        if probe is None or probe not in docket.observations:
            return "", False
        if state(docket, probe) is not State.UNDECIDED:
            return "", False
        native = sum(prod(spec.shape) for spec in self.program.task.inputs)
        growth = native / max(discovery.elements, 1)
        slow = discovery.seconds * growth**GROWTH * SLACK > self.options.timeout
        hung = docket.observations[probe].status is Status.HUNG
        return undecided_reason(docket, probe), hung and slow

    def _no_verdict(
        self, reason: str, warnings: tuple[str, ...], outcome: Outcome = Outcome.INCONCLUSIVE
    ) -> Verdict:
        findings = tuple(
            Finding(gate=g.CONTRACT.identifier, outcome=outcome, reason=reason) for g in self.gates
        )
        return Verdict(
            name=self.candidate.name,
            standing=Standing.INCONCLUSIVE,
            findings=findings,
            grade="none",
            required=self.options.required or "fp32",
            provenance=self._provenance("none"),
            warnings=warnings,
            contract=self._contract.identifier if self._contract is not None else "",
            promises=promises(self._contract) if self._contract is not None else (),
            hints=hints(self.candidate.source),
            seconds=time.perf_counter() - self.start,
        )

    def _provenance(self, weights: str) -> Provenance:
        task: Task = self.program.task
        return Provenance(
            adjudge=__version__,
            task=task.digest,
            candidate=self.candidate.digest,
            gates=gates_digest(),
            runner=self.options.runner,
            device=self.runner.zygote.model or platform.processor() or platform.machine(),
            versions=_versions(),
            isolation=self.runner.zygote.layers,
            weights=weights,
            contract=self.options.contract.digest if self.options.contract is not None else "",
        )

    @property
    def _contract(self) -> Terms | None:
        contract = self.options.contract
        return contract.terms if contract is not None else None

    def _say(self, what: str, done: int, total: int) -> None:
        if self.options.progress is not None:
            self.options.progress(what, done, total)

    @contextmanager
    def _timed(self, what: str) -> Iterator[None]:
        begun = time.perf_counter()
        yield
        self.timings[what] = self.timings.get(what, 0.0) + time.perf_counter() - begun


def scene_of(
    program: Program, candidate: Candidate, scouted: Scouted, options: Options, *, base: Sizes = ()
) -> Scene:
    """What the gates plan on.

    Args:
        base: the sizes that ordinary probes use, where they are not those that were scouted.
    """
    discovery = scouted.discovery
    task = program.task
    if base:
        discovery = replace(discovery, base=base)
    parts: dict[str, Any] = {
        "task": task,
        "candidate": candidate,
        "discovery": discovery,
        "crossed": crossed(task, discovery) if not base else (),
        "runner": options.runner,
    }
    if options.contract is None:
        return Scene(**parts)
    within = within_ranges(task.declared, scouted.builder.arguments)
    return DeclaredScene(**parts, within=within)


def _promised(scene: Scene) -> list[Probe]:
    """Runs at the ends of the sizes that a contract declares: what is promised is looked at."""
    discovery = scene.discovery
    affordable = ELEMENTS // max(discovery.elements, 1)
    points = promised_points(scene.task, dict(discovery.base), affordable)
    return [Probe(sizes=sizes_of(point)) for point in points]


def _cost(g: Gate) -> int:
    return g.CONTRACT.cost


def _starved(docket: Docket, g: Gate) -> tuple[int, int]:
    """How many of the gate's probes, the plain ones that every gate reads aside, did not fit into the
    budget, and how many it asked for."""
    asked = set(g.plan(docket.scene)) - {docket.scene.ordinary, docket.scene.native}
    return sum(docket.skipped.get(p, "").startswith("budget") for p in asked), len(asked)


def _uncompiled(docket: Docket, name: str) -> tuple[int, int]:
    """How many of the gate's probes were left out for what would have been compiled, and how many it
    asked for."""
    asked = set(gate(name).plan(docket.scene))
    return sum(docket.skipped.get(p) == BEYOND for p in asked), len(asked)


def _on_compiling(finding: Finding, left_out: int, asked: int) -> Finding:
    if not left_out or finding.outcome is not Outcome.PASS:
        return finding
    words = f"{left_out} of its {asked} probes were not run: kernels would have been compiled for"
    note = f"{words} more kinds of arguments than is allowed outside the deep mode"
    return replace(finding, notes=(*finding.notes, note))


def _on_budget(finding: Finding, over: int, asked: int) -> Finding:
    """The finding with what the budget kept from its gate: that it has nothing to go by is then no
    property of the task, and that it found nothing is less than it would be."""
    words = f"{over} of its {asked} probes did not fit into the time allowed"
    if over == asked and finding.outcome is Outcome.NOT_APPLICABLE and asked:
        return replace(finding, reason=f"budget: {words}")
    said = any("time budget" in note for note in finding.notes)
    if over and finding.outcome is Outcome.PASS and not said:
        return replace(finding, notes=(*finding.notes, words))
    return finding


def _within_the_runner(docket: Docket, finding: Finding) -> Finding:
    """A gate all of whose runs hang on what this runner cannot know of a GPU does not apply in it, where
    the ordinary run is answered."""
    if (
        finding.outcome is not Outcome.INCONCLUSIVE
        or state(docket, docket.scene.ordinary) is not State.CLEAN
    ):
        return finding
    unknown = {
        "; ".join(run.notes)
        for run in docket.observations.values()
        if run.status is Status.UNSUPPORTED and run.notes
    }
    if finding.reason not in unknown:
        return finding
    reason = f"this runner does not know {finding.reason}"
    return replace(finding, outcome=Outcome.NOT_APPLICABLE, reason=reason)


def _confirmed(docket: Docket, g: Gate, evidence: Evidence) -> Finding:
    """The gate's decision, every conviction by a tolerance confirmed on fresh samples first."""
    while True:
        finding = decide(g, evidence)
        violation = finding.violation
        if violation is None or violation.signature != "value":
            return finding
        if docket.confirm(violation.probe).broken:
            return decide(g, evidence)


def _versions() -> tuple[tuple[str, str], ...]:
    from importlib import metadata

    found = []
    for name in ("torch", "triton", "numpy"):
        try:
            found.append((name, metadata.version(name)))
        except metadata.PackageNotFoundError:
            found.append((name, "absent"))
    return (("python", platform.python_version()), *found)
