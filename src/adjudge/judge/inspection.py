"""The static runner's course: one dry launch for the kernels' types, then machine code for each chip."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

from adjudge.contract import Hint
from adjudge.frontends.sources import LANGUAGES, languages
from adjudge.judge.cases import CaseBuilder
from adjudge.judge.machine import has_cuda, machine_code
from adjudge.judge.refused import DRY_ELEMENTS, recorded
from adjudge.judge.runner import Runner
from adjudge.judge.scout import match_weights
from adjudge.judge.verify import Options, running
from adjudge.observation import Observation
from adjudge.probe import Probe, Sizes, sizes_of
from adjudge.program import OutsideDomain, Program
from adjudge.static.build import Built
from adjudge.static.chips import Chip
from adjudge.static.hints import hints
from adjudge.static.source import Source
from adjudge.symbols import shrunken
from adjudge.task import Candidate, Launch


@dataclass(frozen=True, slots=True, kw_only=True)
class Inspection:
    """What the candidate's text and its machine code say."""

    name: str
    hints: tuple[Hint, ...]
    #: One a kernel as launched (of CUDA C++, as written) and a chip.
    built: tuple[Built, ...]
    #: The sizes at which launches were recorded; empty where none was made.
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
    source = Source(candidate.source)
    sizes: Sizes = ()
    launches: tuple[Launch, ...] = ()
    notes: list[str] = []
    others = [LANGUAGES[n] for n in languages(candidate.source) if n in ("tilelang", "cute")]
    notes += [
        f"kernels in {name} are not compiled here: their text alone is read" for name in others
    ]
    if source.kernels or not (others or has_cuda(source)):
        with running(candidate, options) as runner:
            sizes, observation, notes = _dry_run(program, runner)
        launches = observation.launches
        if not launches:
            raised = observation.raised
            words = f": {raised.type}: {raised.message[:300]}" if raised is not None else ""
            notes.append(f"no Triton kernel was launched{words}")
    built, unread = machine_code(source, launches, chips, isolation=options.isolation)
    return Inspection(
        name=candidate.name,
        hints=hints(candidate.source),
        built=built,
        sizes=sizes,
        notes=(*notes, *unread),
    )


def _dry_run(program: Program, runner: Runner) -> tuple[Sizes, Observation, list[str]]:
    """Launches recorded at the native sizes, or at small ones where those are too large."""
    small, native = sizes_of(shrunken(program)), sizes_of(program.task.native)
    notes: list[str] = []
    builder = CaseBuilder(program, by_name=match_weights(program, small, runner).how == "by name")
    elements = sum(prod(s.shape) for s in (*program.task.inputs, *program.task.parameters))
    if elements <= DRY_ELEMENTS:
        try:
            observation = recorded(builder, Probe(sizes=native), runner)
            if observation.launches:
                return native, observation, notes
            ended = observation.status.value
            notes.append(f"the native sizes launched nothing ({ended}); the small ones are shown")
        except OutsideDomain as why:
            notes.append(f"the native sizes are not shown: {why}")
    else:
        notes.append(f"{elements:,} elements are too many here; the small sizes are shown")
    return small, recorded(builder, Probe(sizes=small), runner), notes
