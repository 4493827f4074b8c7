"""adjudge selfcheck"""

from __future__ import annotations

from pathlib import Path

from adjudge.cli import common


def selfcheck(*, write: Path | None = None, runner: common.RunnerName = "interpret") -> int:
    """Judge every calibration pair under every gate: who watches the watchmen.

    Parameters
    ----------
    write
        Also write the matrix to this file, as JSON.
    runner
        As for verify.
    """
    from rich.console import Console

    from adjudge.cli import CLEAN, FAULT
    from adjudge.report.matrix import matrix_report

    with common.progress(Console(stderr=True)) as advance:
        advance("loading torch", 0, 0)
        from adjudge.judge.selfcheck import selfcheck as judge
        from adjudge.judge.selfcheck import to_json

        matrix = judge(advance, runner=runner)
    if write is not None:
        write.write_text(to_json(matrix), encoding="utf-8")
    Console(highlight=False).print(matrix_report(matrix))
    return FAULT if matrix.missed or matrix.false_alarms else CLEAN
