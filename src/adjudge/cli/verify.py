"""adjudge verify"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from adjudge.cli import common


def verify(
    candidate: Path,
    /,
    *,
    reference: Path | None = None,
    gates: Annotated[str, Parameter(name=["--gates", "-g"])] = "",
    budget: float | None = None,
    required: str = "",
    json: Annotated[Path | None, Parameter(allow_leading_hyphen=True)] = None,
    isolation: common.Isolation = "full",
    verbose: Annotated[bool, Parameter(name=["--verbose", "-v"])] = False,
) -> int:
    """Judge a candidate against its reference.

    Parameters
    ----------
    candidate
        File that defines ModelNew. It runs in a sandboxed process only.
    reference
        File that defines Model, get_inputs and get_init_inputs; reference.py beside the candidate if
        not given. It is trusted, and executed here.
    gates
        Comma-separated gates to run; all of them if not given.
    budget
        Seconds for the probes together; cheap and decisive ones run first.
    required
        Precision regime the candidate must meet; derived from the reference if not given.
    json
        Also write the verdict's record to this file; "-" writes it to standard output instead of the
        report.
    isolation
        "none" runs the candidate without a sandbox: for code you trust, on systems without Landlock.
    verbose
        Also show provenance and the seconds each stage took.
    """
    from rich.console import Console

    from adjudge.cli import CLEAN, VIOLATION
    from adjudge.contract import Standing
    from adjudge.errors import HarnessError
    from adjudge.gates import GATES
    from adjudge.gates import gate as gate_named

    names = tuple(name.strip() for name in gates.split(",") if name.strip())
    for name in names:
        gate_named(name)
    reference = common.reference_of(candidate, reference)
    with common.progress(Console(stderr=True)) as advance:
        advance("loading torch", 0, 0)
        from adjudge.frontends import kernelbench
        from adjudge.judge.verify import Options
        from adjudge.judge.verify import verify as judge

        advance("reading the reference", 0, 0)
        program, under_judgement = kernelbench.load(candidate, reference)
        options = Options(
            budget=budget,
            gates=names or None,
            isolation=isolation,
            required=required,
            progress=advance,
        )
        verdict = judge(program, under_judgement, options)
    text = None
    if json is not None:
        from adjudge.record import to_json

        text = to_json(verdict)
        if str(json) != "-":
            try:
                json.write_text(text + "\n", encoding="utf-8")
            except OSError as error:
                raise HarnessError(f"the record cannot be written to {json}: {error}") from error
    if str(json) == "-":
        print(text)
    else:
        from adjudge.report.terminal import verdict_report

        tail = f"{candidate} --reference {reference}"
        summaries = {g.CONTRACT.identifier: g.CONTRACT.summary for g in GATES}
        Console(highlight=False).print(
            verdict_report(verdict, summaries=summaries, replay_tail=tail, verbose=verbose),
            crop=False,
        )
    broken = verdict.standing in (Standing.VIOLATING, Standing.FRAGILE)
    return VIOLATION if broken else CLEAN
