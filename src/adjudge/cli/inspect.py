"""adjudge inspect"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from adjudge.cli import common


def inspect(
    candidate: Path,
    /,
    *,
    reference: Path | None = None,
    chip: Annotated[tuple[str, ...], Parameter(name=["--chip", "-c"])] = (),
    isolation: common.Isolation = "full",
) -> int:
    """Read a candidate without running its kernels: hints, and machine code for chips not at hand.

    Nothing here is a verdict. Exit code 0.

    Parameters
    ----------
    candidate
        File that defines ModelNew. It runs in a sandboxed process only.
    reference
        File that defines Model, get_inputs and get_init_inputs; reference.py beside the candidate if
        not given. It is trusted, and executed here.
    chip
        Chips to compile for (sm_80, sm_90, sm_100); all of them if not given. May be repeated.
    isolation
        "none" runs the candidate without a sandbox: for code you trust, on systems without Landlock.
    """
    from rich.console import Console

    from adjudge.cli import CLEAN
    from adjudge.static.chips import CHIPS
    from adjudge.static.chips import chip as chip_named

    chips = tuple(chip_named(name) for name in chip) or CHIPS
    reference = common.reference_of(candidate, reference)
    with common.progress(Console(stderr=True)) as advance:
        advance("loading torch", 0, 0)
        from adjudge.frontends import kernelbench
        from adjudge.judge import inspection
        from adjudge.judge.verify import Options

        advance("reading the reference", 0, 0)
        program, under_judgement = kernelbench.load(candidate, reference)
        advance("compiling", 0, 0)
        found = inspection.inspect(program, under_judgement, chips, Options(isolation=isolation))
    from adjudge.report.inspections import inspection_report

    Console(highlight=False).print(inspection_report(found))
    return CLEAN
