"""adjudge calibrate"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from adjudge.cli import common


def calibrate(
    *,
    gates: Annotated[str, Parameter(name=["--gates", "-g"])] = "",
    out: Annotated[Path | None, Parameter(name=["--out", "-o"])] = None,
) -> int:
    """Measure where each derived bound trips: how far above honest noise, how far below real defects.

    Exit codes: 0 if every honest case is acquitted and every defect convicted, else 1.

    Parameters
    ----------
    gates
        Measure only these, separated by commas; without the gap test unless narrow-accumulator is one.
    out
        Also write OUT.md, OUT.svg and OUT.json.
    """
    import json

    from rich.console import Console

    from adjudge.cli import CLEAN, FAULT
    from adjudge.errors import UsageError

    with common.progress(Console(stderr=True)) as advance:
        advance("loading torch", 0, 0)
        from adjudge.calibrate import report, sweep
        from adjudge.calibrate.subjects import SUBJECTS

        named = [name.strip() for name in gates.split(",") if name.strip()]
        # A gate that is measured at several points stands there once.
        known = list(dict.fromkeys(subject.gate for subject in SUBJECTS))
        for name in named:
            if name not in known:
                raise UsageError(
                    f"{name!r} compares with no derived bound",
                    todo=f"There are: {', '.join(known)}.",
                )
        chosen = [subject for subject in SUBJECTS if not named or subject.gate in named]
        rows = []
        for done, subject in enumerate(chosen):
            advance(subject.gate, done, len(chosen) + 1)
            rows.append(sweep.measure(subject))
        gap = sweep.gaps() if not named or "narrow-accumulator" in named else ()
    record = sweep.record(rows, gap)
    console = Console(highlight=False)
    for row in record["gates"]:
        console.print(
            f"{row['gate']}: trips at {row['above_noise']} of honest noise; the smallest defect lies at "
            f"{row['below_defect']} of that"
        )
    wrong = report.misplaced(record)
    for gate, kind, name, _ in wrong:
        console.print(f"{gate}: on the wrong side ({kind}): {name}")
    if out is not None:
        out.with_suffix(".json").write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
        out.with_suffix(".svg").write_text(report.plot(record), encoding="utf-8")
        if gap:
            out.with_suffix(".md").write_text(report.page(record), encoding="utf-8")
    return FAULT if wrong else CLEAN
