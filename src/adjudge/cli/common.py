"""What several commands share."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from adjudge.errors import UsageError

if TYPE_CHECKING:
    from rich.console import Console

    from adjudge.contract import Verdict
    from adjudge.contracts.file import ContractFile
    from adjudge.contracts.waivers import Waivers

Isolation = Literal["full", "none"]
RunnerName = Literal["interpret", "cuda"]
ScopeName = Literal["declared", "extended"]
Advance = Callable[[str, int, int], None]

_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}
_TIME = re.compile(r"\s*(\d+(?:\.\d*)?|\.\d+)\s*(ms|s|m|h)?\s*\Z")

#: Most lanes of one verdict on a GPU: each opens a context, and a driver opens them one after another.
_LANES = 4

#: Name of the reference that is taken when none is given: the file beside the candidate.
REFERENCE = "reference.py"


def reference_of(
    candidate: Path, reference: Path | None, contract: ContractFile | None = None
) -> Path:
    """The given reference, the one that the contract names, or the one beside the candidate.

    Raises:
        UsageError: there is no candidate, or no reference is given and none lies beside it.
    """
    if not candidate.exists():
        raise UsageError("there is no such file", where=str(candidate))
    if reference is not None:
        return reference
    if contract is not None and contract.reference is not None:
        return contract.reference
    beside = candidate.parent / REFERENCE
    if not beside.is_file():
        raise UsageError(
            "no reference is given",
            where=str(candidate),
            todo=f"Pass --reference FILE, or put a {REFERENCE} beside the candidate.",
        )
    return beside


def lanes_of(runner: RunnerName) -> int:
    """How many processes run the probes of one verdict. To be called before torch is asked for devices,
    and after what needs them was launched: with several, this process must see none."""
    if runner != "cuda":
        return 1
    import torch

    from adjudge.worker.launch import hide_device

    hide_device()
    torch.set_num_threads(1)
    return max(1, min(_LANES, (os.cpu_count() or 1) // 2))


def exit_code(verdict: Verdict, scope: ScopeName = "extended") -> int:
    """What was not judged is neither clean nor a violation: that is our own fault's code.

    Args:
        scope: "declared" promises nothing beyond the declared scope: a fragile candidate is clean.
    """
    from adjudge.cli import CLEAN, FAULT, VIOLATION
    from adjudge.contract import Standing

    codes = {Standing.SOUND: CLEAN, Standing.INCONCLUSIVE: FAULT}
    if scope == "declared":
        codes[Standing.FRAGILE] = CLEAN
    return codes.get(verdict.standing, VIOLATION)


def seconds_of(budget: str) -> float | None:
    """The seconds in "5s", "500ms", "2m" or "1.5"; None where nothing is given.

    Raises:
        UsageError: it is no length of time, or none in which a probe could run.
    """
    if not budget:
        return None
    match = _TIME.match(budget)
    seconds = float(match[1]) * _UNITS[match[2] or "s"] if match else 0.0
    if not seconds > 0:
        raise UsageError(
            f"--budget {budget}: that is no length of time", todo='Write "5s", "500ms" or "2m".'
        )
    return seconds


def contract_of(path: Path | None) -> ContractFile | None:
    """The contract in the file, if one is given.

    Raises:
        UsageError: the file's mistake.
    """
    if path is None:
        return None
    from adjudge.contracts.file import load

    return load(path)


def waivers_of(path: Path | None) -> Waivers | None:
    """The waivers in the file, as of today, if one is given.

    Raises:
        UsageError: the file's mistake.
    """
    if path is None:
        return None
    from datetime import date

    from adjudge.contracts.waivers import load

    return load(path, date.today())


def settled(code: int, verdict: Verdict, waivers: Waivers | None, candidate: Path) -> int:
    """The exit code once waivers that no longer hold were complained of, on standard error.

    They are a mistake in the file, whatever was found of the candidate; only a fault of ours stays one.

    Args:
        candidate: the file that was judged.
    """
    if waivers is None:
        return code
    from rich.console import Console
    from rich.text import Text

    from adjudge.cli import FAULT, MISTAKE
    from adjudge.contracts.waivers import candidates_near, complaints

    folders = {Path(waivers.file.path).resolve().parent, candidate.resolve().parent}
    found = complaints(verdict.findings, waivers, verdict.name, lambda: candidates_near(*folders))
    console = Console(stderr=True, highlight=False, soft_wrap=True)
    for line, words in found:
        console.print(Text("error", style="bold red"), Text(f"{waivers.file.path}:{line}: {words}"))
    return MISTAKE if found and code != FAULT else code


def show(
    verdict: Verdict,
    candidate: Path,
    reference: Path,
    *,
    verbose: bool = False,
    table: bool = True,
    contract: Path | None = None,
) -> None:
    """Prints the report, with lines that replay from here."""
    from rich.console import Console

    from adjudge.gates import GATES
    from adjudge.report.terminal import verdict_report

    runner = verdict.provenance.runner
    elsewhere = "" if runner == "interpret" else f" --runner {runner}"
    if contract is not None:
        elsewhere += f" --contract {contract}"
    report = verdict_report(
        verdict,
        summaries={g.CONTRACT.identifier: g.CONTRACT.summary for g in GATES},
        replay_tail=f"{candidate} --reference {reference}{elsewhere}",
        verbose=verbose,
        table=table,
    )
    Console(highlight=False).print(report, crop=False)


@contextmanager
def progress(console: Console) -> Iterator[Advance]:
    """A bar on standard error that shows what is being done; nothing where no one looks."""
    if not console.is_terminal:
        yield lambda what, done, total: None
        return
    from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn

    columns = (SpinnerColumn(), TextColumn("{task.description}"), BarColumn())
    with Progress(*columns, console=console, transient=True) as bar:
        row = bar.add_task("starting", total=None)

        def advance(what: str, done: int, total: int) -> None:
            bar.update(row, description=what, completed=done, total=total or None)

        yield advance
