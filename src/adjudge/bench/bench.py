"""One candidate: its verdict, its time, and whether the time is believed."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

import torch

from adjudge import arrays
from adjudge.bench import answers, roofline, rounds
from adjudge.bench.belief import belief, suffices
from adjudge.bench.record import Benchmark, Roofline, Timing
from adjudge.bench.ring import Ring, ring_of
from adjudge.bench.rounds import Campaign, Measured
from adjudge.bench.subject import Fell, Subject
from adjudge.contract import Verdict
from adjudge.frontends import kernelbench
from adjudge.inputs.sampler import Sampler
from adjudge.judge.cases import CaseBuilder
from adjudge.judge.verify import Options, running
from adjudge.judge.verify import verify as judge
from adjudge.probe import Probe, sizes_of
from adjudge.program import Arguments, OutsideDomain, Program
from adjudge.task import Candidate
from adjudge.worker.client import Zygote

#: Draws that calls take turns with.
BASES = 2
#: Seconds that a long span should take: some hundred times what a handshake's length varies by.
TARGET = {"interpret": 0.04, "cuda": 0.01}
#: Bytes that the inputs and answers of a span may take on a CPU; on a GPU, this part of its memory.
MEMORY, PART = 1 << 30, 8
#: A CPU's last cache where the system does not tell.
CACHE = 32 << 20

EAGER = "\n\nclass ModelNew(Model):\n    pass\n"
COMPILED = """

class ModelNew(Model):
    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self._compiled = torch.compile(super().forward)

    def forward(self, *args, **kwargs):
        return self._compiled(*args, **kwargs)
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    #: Seconds after which no further rounds are made.
    seconds: float = 30.0
    #: Also `torch.compile` of the reference.
    compiled: bool = True
    #: Also the machine's ceilings.
    roofline: bool = True
    #: A running zygote to time in, with the CPU's own face; otherwise one is started and closed.
    zygote: Zygote | None = None


def bench(
    program: Program, candidate: Candidate, options: Options, settings: Settings | None = None
) -> Benchmark:
    """The candidate judged, then timed at the task's own sizes.

    Raises:
        UsageError: as `verify` raises it.
        HarnessError: the machine cannot run a worker.
    """
    return timed(program, candidate, judge(program, candidate, options), options, settings)


def timed(
    program: Program,
    candidate: Candidate,
    verdict: Verdict,
    options: Options,
    settings: Settings | None = None,
) -> Benchmark:
    """The candidate timed beside a verdict that was reached before.

    Raises:
        HarnessError: the machine cannot run a worker.
    """
    if options.runner == "interpret" and candidate.language != "torch":
        words = f"a {candidate.language} kernel is timed on a GPU only (--runner cuda)"
        return _refused(candidate, verdict, words)
    settings = settings or Settings()
    with _zygote(options, settings) as zygote, running(candidate, replace(options, zygote=zygote)):
        return _Session(program, candidate, verdict, options, settings, zygote).benchmark()


@contextmanager
def _zygote(options: Options, settings: Settings) -> Iterator[Zygote]:
    if settings.zygote is not None:
        yield settings.zygote
        return
    # A face that answers as a GPU would takes longer than many a call; what is compiled may be timed.
    with Zygote.start(
        isolation=options.isolation, face="cpu", allow_compiler=True, runner=options.runner
    ) as zygote:
        yield zygote


def _refused(candidate: Candidate, verdict: Verdict, *reasons: str, **facts: Any) -> Benchmark:
    facts = {"candidate": None, "eager": None, "compiled": None, **facts}
    return Benchmark(name=candidate.name, verdict=verdict, refused=reasons, date=_now(), **facts)


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")


class _Session:
    """The course of one benchmark."""

    def __init__(
        self,
        program: Program,
        candidate: Candidate,
        verdict: Verdict,
        options: Options,
        settings: Settings,
        zygote: Zygote,
    ) -> None:
        self.program, self.candidate, self.verdict = program, candidate, verdict
        self.options, self.settings, self.zygote = options, settings, zygote
        by_name = verdict.provenance.weights == "by name"
        self.builder = CaseBuilder(program, by_name=by_name)
        self.probe = Probe(sizes=sizes_of(program.task.native))
        self.notes: list[str] = []

    def benchmark(self) -> Benchmark:
        try:
            ring = self._ring()
        except OutsideDomain as why:
            return _refused(self.candidate, self.verdict, f"the reference's inputs fail: {why}")
        with ExitStack() as stack:
            try:
                eager, ring = self._eager(ring, stack)
            except Fell as why:
                return _refused(self.candidate, self.verdict, str(why))
            compiled = self._compiled(ring, stack) if self.settings.compiled else None
            try:
                candidate = stack.enter_context(
                    self._subject("the candidate", self.candidate, ring)
                )
                subjects = [s for s in (candidate, eager, compiled) if s is not None]
                campaign = self._run(subjects, candidate.name, eager.name)
            except Fell as why:
                return _refused(self.candidate, self.verdict, str(why))
        return self._judged(campaign, ring, [s.name for s in subjects], eager.cache)

    def _ring(self) -> Ring:
        sizes = dict(self.probe.sizes)
        return ring_of([self.program.arguments(sizes, Sampler(seed)) for seed in range(BASES)])

    def _subject(self, name: str, candidate: Candidate, ring: Ring) -> Subject:
        return Subject(
            name,
            self.zygote,
            candidate,
            ring,
            weights=self.builder.weights(self.probe, ring.bases[0]),
            cache=_cache(),
        )

    def _reference(self, name: str, tail: str, ring: Ring) -> Subject:
        source = self.program.task.source + tail
        return self._subject(name, kernelbench.candidate_from(source, name), ring)

    def _eager(self, ring: Ring, stack: ExitStack) -> tuple[Subject, Ring]:
        """The trusted subject, and the ring without variation where the reference does not bear it."""
        for each in (ring, ring.plain()):
            subject = stack.enter_context(self._reference("the reference", EAGER, each))
            try:
                subject.span(1)
            except Fell as why:
                if not each.varied:
                    raise
                self.notes.append(f"inputs are not varied: {why}")
                continue
            return subject, each
        raise AssertionError("the second ring returns or raises")

    def _compiled(self, ring: Ring, stack: ExitStack) -> Subject | None:
        try:
            name = "torch.compile of the reference"
            subject = stack.enter_context(self._reference(name, COMPILED, ring))
            subject.span(1)
        except Fell as why:
            self.notes.append(f"not compared with torch.compile: {why}")
            return None
        return subject

    def _run(self, subjects: Sequence[Subject], candidate: str, trusted: str) -> Campaign:
        memory = self.zygote.memory // PART if self.zygote.model else MEMORY
        return rounds.run(
            subjects,
            target=TARGET[self.options.runner],
            memory=memory,
            enough=lambda found: suffices(found[candidate], found[trusted]),
            seconds=self.settings.seconds,
        )

    def _judged(
        self, campaign: Campaign, ring: Ring, names: Sequence[str], cache: int
    ) -> Benchmark:
        measured = campaign.measured
        mine, trusted = measured[names[0]], measured[names[1]]
        believed = belief(mine, trusted)
        checked = answers.check(
            campaign.shown,
            ring,
            self.builder,
            self.probe,
            regime=self.verdict.required,
            grade=self.verdict.grade,
        )
        reasons = [*checked.wrong, *believed.reasons, *_tampering(campaign)]
        if checked.unjudged and not checked.wrong:
            reasons.append(f"no answer of a timed call could be judged: {checked.unjudged}")
        if not ring.varied:
            self.notes.append("inputs of one call are those of another: answers may have been kept")
        facts: dict[str, Any] = {
            "eager": _timing(names[1], trusted, ring),
            "compiled": _timing(names[2], measured[names[2]], ring) if len(names) > 2 else None,
            "wrong": checked.wrong,
            "checked": checked.number,
            "calls": campaign.calls,
            "unjudged": checked.unjudged,
            "hidden": believed.hidden,
            "varied": tuple(sorted(ring.varied)),
            "cache": cache,
            "roofline": self._roofline(ring, trusted) if self.settings.roofline else None,
            "notes": tuple(self.notes),
        }
        if reasons:
            return _refused(self.candidate, self.verdict, *reasons, **facts)
        return Benchmark(
            name=self.candidate.name,
            verdict=self.verdict,
            candidate=_timing(names[0], mine, ring),
            date=_now(),
            **facts,
        )

    def _roofline(self, ring: Ring, trusted: Measured) -> Roofline | None:
        arguments = ring.bases[0]
        work = roofline.work(self.program, self.builder, arguments, trusted.rounds[0].long.nbytes)
        try:
            bandwidth = 2 * roofline.COPIED[self.options.runner] / self._ceiling("Copy", work.dtype)
            width = roofline.WIDTHS[self.options.runner]
            rate = 2 * width**3 / self._ceiling("Product", work.dtype) if work.operations else 0.0
        except Fell as why:
            self.notes.append(f"no roofline: {why}")
            return None
        ceilings = roofline.Ceilings(bandwidth=bandwidth, rate=rate)
        return Roofline(
            nbytes=work.nbytes,
            operations=work.operations,
            bandwidth=bandwidth,
            rate=rate,
            seconds=roofline.least_seconds(work, ceilings),
        )

    def _ceiling(self, what: str, dtype: str) -> float:
        """Seconds of one call of a program of ours."""

        sizes = roofline.COPIED if what == "Copy" else roofline.WIDTHS
        init = (sizes[self.options.runner], arrays.torch_dtype(dtype))

        given = Arguments(init_args=init, args=(torch.zeros(1),))
        source = roofline.CEILINGS + f"\n\nModelNew = {what}\n"
        with Subject(
            what.lower(),
            self.zygote,
            kernelbench.candidate_from(source, what.lower()),
            Ring((given,), frozenset()),
            weights=None,
            cache=_cache(),
        ) as subject:
            campaign = rounds.run(
                [subject],
                target=TARGET[self.options.runner],
                memory=MEMORY,
                enough=lambda found: True,
                seconds=0.0,
            )
        # The best that was seen: a ceiling is not lowered by what disturbed it.
        return max(
            min(r.long.call / r.long.count for r in campaign.measured[subject.name].rounds), 1e-9
        )


def _tampering(campaign: Campaign) -> list[str]:
    seen = {words for shown in campaign.shown for words in shown.observation.tampering}
    return [f"the candidate {words}" for words in sorted(seen)]


def _timing(name: str, measured: Measured, ring: Ring) -> Timing:
    call = measured.of("call")
    first = measured.rounds[0]
    return Timing(
        name=name,
        seconds=call.median,
        low=call.low,
        high=call.high,
        claimed=measured.of("claimed").median,
        place=measured.of("place").median,
        seal=measured.of("seal").median,
        beside=measured.beside.median,
        calls=(first.short.count, first.long.count),
        rounds=len(measured.rounds),
        ring=first.long.count * ring.nbytes,
    )


def _cache() -> int:
    for name in ("SC_LEVEL4_CACHE_SIZE", "SC_LEVEL3_CACHE_SIZE"):
        if name in os.sysconf_names and (size := os.sysconf(name)) > 0:
            return size
    return CACHE
