"""Kernels that no compiler accepts: what the interpreter runs is then no answer on any GPU.

Triton's compiler reads each kernel as it was launched at the declared sizes, nvcc compiles CUDA C++; no
GPU is needed. A kernel that is refused for every chip convicts, in the compiler's own words; one that is
accepted for some chip does not, unless a contract declares a chip for which it is refused. Where no
compiler is present, or it fails for another reason, nothing is held against the candidate.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import prod

from adjudge.contract import Finding, Outcome, Scope, Violation
from adjudge.errors import UsageError
from adjudge.inputs.codec import encode_recipe
from adjudge.judge.cases import CaseBuilder
from adjudge.judge.machine import refusals
from adjudge.judge.runner import Runner
from adjudge.judge.scout import NATIVE_ELEMENTS
from adjudge.observation import Observation
from adjudge.probe import Probe, sizes_of
from adjudge.program import OutsideDomain, Program
from adjudge.static.build import Built, Job
from adjudge.static.chips import CHIPS, chip
from adjudge.static.hints import hints
from adjudge.static.source import Source
from adjudge.task import Candidate, Launch, short_digest

#: Input elements up to which a launch is recorded at the native sizes: nothing runs in it but what the
#: candidate does outside its kernels.
DRY_ELEMENTS = 1 << 27
#: Seconds given to that.
DRY_SECONDS = 60.0
#: The gate of answers: a kernel that is not compiled gives none.
GATE = "wrong-value"
SIGNATURE = "not compiled"
#: Triton's name for a `tl.static_assert` that fails: an autotuner skips a configuration for it.
_ASSERTED = "CompileTimeAssertionFailure"


def recorded(builder: CaseBuilder, probe: Probe, runner: Runner) -> Observation:
    """A run whose kernels are launched and not executed.

    Raises:
        OutsideDomain: the reference does not take such inputs.
    """
    case = builder.build(probe)
    dry = replace(case, request=replace(case.request, schedule="none"))
    return runner.run(dry, timeout=DRY_SECONDS)


def launches_at_native(
    program: Program, builder: CaseBuilder, runner: Runner
) -> tuple[Launch, ...]:
    """What is launched at the declared sizes; nothing where that cannot be recorded here."""
    task = program.task
    # Drawing more takes longer than all other runs of a verdict together.
    if sum(prod(s.shape) for s in (*task.inputs, *task.parameters)) > NATIVE_ELEMENTS:
        return ()
    try:
        return recorded(builder, Probe(sizes=sizes_of(task.native)), runner).launches
    except OutsideDomain:
        return ()


def held(
    program: Program, candidate: Candidate, launches: Sequence[Launch], *, isolation: str
) -> tuple[Violation | None, tuple[str, ...]]:
    """The violation of a candidate whose kernel no compiler accepts, and what else compilers say of it.

    Args:
        launches: of Triton kernels, at the declared sizes.
        isolation: "full" or "none".
    """
    violation, notes, _ = _judged(program, candidate, launches, isolation)
    return violation, notes


def again(
    program: Program, candidate: Candidate, launches: Sequence[Launch], *, isolation: str
) -> Finding | None:
    """The finding of a candidate whose kernel no compiler accepts, as a replay asks for it; None where
    some compiler accepts each. Arguments as of `held`.

    Raises:
        UsageError: no compiler could be asked here.
    """
    violation, notes, built = _judged(program, candidate, launches, isolation)
    if violation is not None:
        return _found(violation)
    failed = next((one.error for one in built if one.error and not one.refused), "")
    if failed or not built:
        why = " ".join(failed.split()) or "; ".join(notes) or "no kernel was found"
        raise UsageError(
            f"the recipe cannot be run here: {why}",
            todo="Run it where the compiler is present; `adjudge doctor` says which are.",
        )
    return None


def _judged(
    program: Program, candidate: Candidate, launches: Sequence[Launch], isolation: str
) -> tuple[Violation | None, tuple[str, ...], tuple[Built, ...]]:
    try:
        source = Source(candidate.source)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None, (), ()
    declared = [chip(name) for name in program.task.declared.resources.chips]
    unasked = (
        "Triton's compiler was not asked: no launch could be recorded here at the declared sizes"
    )
    built, notes = refusals(source, launches, CHIPS, isolation=isolation)
    notes = (*notes, unasked) if source.kernels and not launches else notes
    groups: dict[tuple[str, str], list[Built]] = {}
    for one in built:
        groups.setdefault(one.title, []).append(one)
    caught = ""
    for group in groups.values():
        refused = [one for one in group if _is_refused(one)]
        failed = [one for one in group if one.error]
        everywhere = len(refused) == len(CHIPS)
        promised = [one for one in refused if one.job.chip in declared]
        if not failed:
            continue
        words = _words(refused or failed, everywhere=everywhere)
        if (everywhere or promised) and not _falls_back(candidate.source):
            caught = caught or words
        else:
            notes = (*notes, words)
    if not caught:
        return None, notes, built
    probe = Probe(sizes=sizes_of(program.task.native))
    violation = Violation(
        probe=probe,
        signature=SIGNATURE,
        message=caught,
        where="compiler",
        replay=_line(program, probe),
    )
    return violation, notes, built


def _line(program: Program, probe: Probe) -> str:
    """A recipe that names what is to be compiled: nothing of it hangs on the bytes of the inputs."""
    return encode_recipe(
        {
            "gate": GATE,
            "signature": SIGNATURE,
            "probe": probe,
            "base": probe.sizes,
            "regime": "",
            "required": "",
            "outputs": [],
            "task": short_digest(program.task.source),
            "inputs": "",
        }
    )


def convicted(findings: Sequence[Finding], violation: Violation | None) -> tuple[Finding, ...]:
    """The findings with the violation on the gate of answers; where that has one already, as a note."""
    if violation is None:
        return tuple(findings)
    return tuple(_with(f, violation) if f.gate == GATE else f for f in findings)


def noted(findings: Sequence[Finding], notes: Sequence[str]) -> tuple[Finding, ...]:
    """The findings with the notes on the gate of answers."""
    return tuple(replace(f, notes=(*f.notes, *notes)) if f.gate == GATE else f for f in findings)


def _with(finding: Finding, violation: Violation) -> Finding:
    if finding.outcome is Outcome.VIOLATION and finding.scope is Scope.DECLARED:
        return replace(finding, notes=(*finding.notes, violation.message))
    before = [finding.reason] if finding.outcome is Outcome.VIOLATION else []
    return replace(
        _found(violation),
        notes=(*finding.notes, *before),
        probes=finding.probes,
        seconds=finding.seconds,
        runner=finding.runner,
    )


def _found(violation: Violation) -> Finding:
    return Finding(
        gate=GATE,
        outcome=Outcome.VIOLATION,
        reason=violation.message,
        scope=Scope.DECLARED,
        exact=True,
        violation=violation,
    )


def _is_refused(built: Built) -> bool:
    tuned = isinstance(built.job, Job) and built.job.launch.configs > 1
    return bool(built.refused) and not (built.refused == _ASSERTED and tuned)


def _falls_back(text: str) -> bool:
    """Whether something else may answer where a kernel is not compiled."""
    return any(hint.rule == "fallback" for hint in hints(text))


def _words(built: Sequence[Built], *, everywhere: bool) -> str:
    """What the compiler says, once for all chips that it says it for."""
    first = built[0]
    compiler = "Triton's compiler" if isinstance(first.job, Job) else "nvcc"
    names = ", ".join(one.job.chip.name for one in built)
    said = " ".join(first.error.split())
    kernel = first.title[0]
    if everywhere:
        return f"{compiler} accepts {kernel} for no chip ({names}): {said}"
    return f"{compiler} does not compile {kernel} for {names}: {said}"
