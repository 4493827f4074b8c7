"""The static runner's course: one dry launch for the kernels' types, then machine code for each chip."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import prod

from adjudge.contract import Hint
from adjudge.judge.cases import CaseBuilder
from adjudge.judge.runner import Runner
from adjudge.judge.scout import match_weights
from adjudge.judge.verify import Options, running
from adjudge.observation import Observation
from adjudge.probe import Probe, Sizes, sizes_of
from adjudge.program import OutsideDomain, Program
from adjudge.static.build import Built, Job, build
from adjudge.static.chips import Chip
from adjudge.static.hints import hints
from adjudge.static.kernels import standalone
from adjudge.static.source import Source
from adjudge.symbols import shrunken
from adjudge.task import Candidate, Launch

#: Input elements up to which a launch is recorded at the native sizes: nothing runs in it but what the
#: candidate does outside its kernels.
DRY_ELEMENTS = 1 << 27
#: Seconds given to that.
DRY_SECONDS = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Inspection:
    """What the candidate's text and its machine code say."""

    name: str
    hints: tuple[Hint, ...]
    #: One a kernel as launched and a chip; empty where nothing was launched.
    built: tuple[Built, ...]
    #: The sizes at which the launches were recorded.
    sizes: Sizes
    #: What could not be read, and why.
    notes: tuple[str, ...]


def inspect(
    program: Program, candidate: Candidate, chips: Sequence[Chip], options: Options | None = None
) -> Inspection:
    """Reads a candidate without running its kernels.

    Raises:
        HarnessError: the machine cannot run a worker.
    """
    options = options or Options()
    with running(candidate, options) as runner:
        sizes, observation, notes = _dry_run(program, runner)
    distinct = tuple(dict.fromkeys(_unplaced(launch) for launch in observation.launches))
    jobs, unread = _jobs(candidate, distinct, chips)
    if not distinct:
        raised = observation.raised
        words = f": {raised.type}: {raised.message[:300]}" if raised is not None else ""
        unread.append(f"no Triton kernel was launched{words}")
    return Inspection(
        name=candidate.name,
        hints=hints(candidate.source),
        built=build(jobs, isolation=options.isolation),
        sizes=sizes,
        notes=(*notes, *unread),
    )


def _dry_run(program: Program, runner: Runner) -> tuple[Sizes, Observation, list[str]]:
    """Launches recorded at the native sizes, or at small ones where those are too large."""
    small, native = sizes_of(shrunken(program)), sizes_of(program.task.native)
    notes: list[str] = []
    builder = CaseBuilder(program, by_name=match_weights(program, small, runner) == "by name")
    elements = sum(prod(s.shape) for s in (*program.task.inputs, *program.task.parameters))
    if elements <= DRY_ELEMENTS:
        try:
            observation = _recorded(builder, native, runner)
            if observation.launches:
                return native, observation, notes
            ended = observation.status.value
            notes.append(f"the native sizes launched nothing ({ended}); the small ones are shown")
        except OutsideDomain as why:
            notes.append(f"the native sizes are not shown: {why}")
    else:
        notes.append(f"{elements:,} elements are too many here; the small sizes are shown")
    return small, _recorded(builder, small, runner), notes


def _recorded(builder: CaseBuilder, sizes: Sizes, runner: Runner) -> Observation:
    case = builder.build(Probe(sizes=sizes))
    dry = replace(case, request=replace(case.request, schedule="none"))
    return runner.run(dry, timeout=DRY_SECONDS)


def _unplaced(launch: Launch) -> Launch:
    """Launches on different grids share their machine code."""
    return replace(launch, grid=())


def _jobs(
    candidate: Candidate, launches: Sequence[Launch], chips: Sequence[Chip]
) -> tuple[list[Job], list[str]]:
    source = Source(candidate.source)
    jobs, unread = [], []
    for launch in launches:
        try:
            text = standalone(source, launch.kernel)
        except KeyError:
            unread.append(f"{launch.kernel} is not defined at the top of the candidate's file")
            continue
        jobs += [Job(launch=launch, text=text, chip=chip) for chip in chips]
    return jobs, unread
