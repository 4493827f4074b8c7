"""Machine code of what a candidate launches or carries, for chips that need not be here."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from adjudge.observation import Demand
from adjudge.static import nvcc
from adjudge.static.build import Built, CudaJob, Job, build
from adjudge.static.chips import Chip
from adjudge.static.device_code import device_code
from adjudge.static.inline import inline_sources
from adjudge.static.kernels import standalone
from adjudge.static.source import Source
from adjudge.task import Launch
from adjudge.worker import complaints

WITHOUT_NVCC = (
    "there is no nvcc here, so CUDA C++ is not compiled; `adjudge doctor` says what it needs"
)


def machine_code(
    source: Source, launches: Sequence[Launch], chips: Sequence[Chip], *, isolation: str = "full"
) -> tuple[tuple[Built, ...], tuple[str, ...]]:
    """One result a kernel and chip, and what could not be read, in words.

    Args:
        launches: of Triton kernels, as recorded; grids do not matter.
        isolation: "full" or "none".
    """
    distinct = tuple(dict.fromkeys(replace(launch, grid=()) for launch in launches))
    jobs, unread = _triton(source, distinct, chips)
    more, notes = _cuda(source, chips)
    built = build([*jobs, *more], isolation=isolation)
    return tuple(_located(one, source) for one in built), (*unread, *notes)


def _located(built: Built, source: Source) -> Built:
    """What nvcc says of the text that it was handed, with the lines of the candidate's file."""
    job, said = built.job, built.error.removeprefix(f"{nvcc.Refused.__name__}: ")
    if not isinstance(job, CudaJob) or not said:
        return built
    found = complaints.errors(said, source.text, job.code.text)
    if not found:
        # The assembler has what the compiler has taken. What templates were read for is our choice.
        assembled = said.startswith("ptxas: error:") and not job.code.notes
        return replace(built, error=said, refused="the assembler's" if assembled else "")
    words, _, line, _ = found[0]
    grammar = line > 0 and nvcc.breaks_grammar(words, job.source.text)
    return replace(
        built,
        error=complaints.of_cpp(said, source.text, job.code.text),
        refused="of grammar" if grammar else "",
    )


def refusals(
    source: Source, launches: Sequence[Launch], chips: Sequence[Chip], *, isolation: str = "full"
) -> tuple[tuple[Built, ...], tuple[str, ...]]:
    """Of each kernel and chip whether the compiler takes it (Triton only reads it), and what could not
    be asked, in words. Arguments as of `machine_code`."""
    distinct = tuple(dict.fromkeys(replace(launch, grid=()) for launch in launches))
    jobs, unread = _triton(source, distinct, chips)
    more, notes = _cuda(source, chips)
    built = build([*(replace(job, only_read=True) for job in jobs), *more], isolation=isolation)
    return tuple(_located(one, source) for one in built), (*unread, *notes)


def demands(
    text: str, launches: Sequence[Launch], chips: Sequence[Chip], *, isolation: str = "full"
) -> tuple[Demand, ...]:
    """What each kernel asks of each chip, and what could not be read."""
    try:
        source = Source(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        words = f"the candidate is no Python that can be read: {type(error).__name__}"
        return (Demand(words=words, unread=True),)
    built, unread = machine_code(source, launches, chips, isolation=isolation)
    return (*map(_demand, built), *(Demand(words=words, unread=True) for words in unread))


def _demand(built: Built) -> Demand:
    kernel, name = built.title[0], built.job.chip.name
    where = f"{kernel} on {name}"
    code = built.code
    if code is None:
        words = f"{where}: not compiled: {' '.join(built.error.split())}"
        return Demand(words=words, kernel=kernel, chip=name, unread=True)
    asked = (
        f"{code.registers} registers a thread of {code.chip.registers}",
        f"{code.shared:,} bytes of shared memory of {code.chip.shared:,}",
        f"{code.tensor_memory} columns of tensor memory of {code.chip.tensor_memory}"
        if code.chip.tensor_memory
        else "",
        *code.remarks,
    )
    return Demand(
        words=f"{where}: {'; '.join(part for part in asked if part)}",
        kernel=kernel,
        chip=name,
        excesses=code.excesses,
        # Where the assembler was asked, it tells spills from arrays that are indexed at run time.
        spills=0 if code.spilled == 0 else code.spills,
    )


def has_cuda(source: Source) -> bool:
    """Whether the candidate carries CUDA C++ that can be read."""
    return bool(inline_sources(source)[0])


def _triton(
    source: Source, launches: Sequence[Launch], chips: Sequence[Chip]
) -> tuple[list[Job], list[str]]:
    jobs, unread = [], []
    for launch in launches:
        try:
            text = standalone(source, launch.kernel)
        except KeyError:
            unread.append(f"{launch.kernel} is not defined at the top of the candidate's file")
            continue
        jobs += [Job(launch=launch, text=text, chip=chip) for chip in chips]
    return jobs, unread


def _cuda(source: Source, chips: Sequence[Chip]) -> tuple[list[CudaJob], list[str]]:
    sources, found = inline_sources(source)
    notes = list(found)
    compiler = nvcc.find() if sources else None
    if sources and compiler is None:
        return [], [*notes, WITHOUT_NVCC]
    jobs = []
    for one in sources:
        code = device_code(one.text)
        notes += [f"line {one.line}: {note}" for note in code.notes]
        if compiler is not None:
            jobs += [CudaJob(source=one, code=code, chip=c, nvcc=compiler) for c in chips]
    return jobs, notes
