"""The page on faults seen in the wild, from the cases under `tests/cases`."""

from __future__ import annotations

import sys
from collections import Counter
from pathlib import Path
from typing import Any

CASES = Path(__file__).resolve().parents[1] / "tests" / "cases"
sys.path.insert(0, str(CASES))
import catalogue  # noqa: E402
from device_faults import DEVICE_FAULTS, SHOWN  # noqa: E402
from faults import Fault  # noqa: E402
from gradient_faults import GRADIENT_FAULTS  # noqa: E402

INTRODUCTION = """# Faults seen in the wild

Public reports of kernels that were wrong and passed their tests, or that passed by a trick. Each that a
CPU or one GPU can show is a small case of our own under [tests/cases](../tests/cases): the fault, and a
correct twin. The tests demand that a gate named here convicts the fault, and that no gate convicts the
twin.
`docs/generate.py` makes this page from the cases.

A case in PyTorch has the fault in plain operations, where the report is about a kernel; a case in Triton
has it in a kernel that the interpreter runs."""


def page() -> str:
    rows = catalogue.rows()
    return "\n".join(
        [
            INTRODUCTION,
            "",
            *_counts(rows),
            "",
            "| report | class | what is wrong | convicted by | here |",
            "| --- | --- | --- | --- | --- |",
            *map(_line, rows),
            "",
        ]
    )


def _counts(rows: tuple[Any, ...]) -> list[str]:
    waiting = Counter(row.waits for row in rows if isinstance(row, catalogue.Waiting))
    cases = sum(isinstance(row, Fault) for row in rows)
    unseen = "" if SHOWN else f" ({len(DEVICE_FAULTS)} of them not run on a GPU yet)"
    words = ", ".join(f"{count} for {what}" for what, count in sorted(waiting.items()))
    of_tasks = len(rows) - cases - waiting.total()
    return [
        f"{len(rows)} reports: {cases} cases{unseen}, {of_tasks} found in the task itself, and "
        f"{waiting.total()} that wait: {words}."
    ]


def _line(row: Any) -> str:
    link = f"[{row.identifier}]({row.report})"
    by, here = _judged(row)
    return f"| {link} | {catalogue.class_of(row.identifier)} | {row.what} | {by} | {here} |"


def _judged(row: Any) -> tuple[str, str]:
    """What convicts, and the case or what it waits for."""
    if isinstance(row, catalogue.Waiting):
        words = {
            catalogue.TWO_GPUS: "needs two GPUs",
            catalogue.OTHER: "other architecture",
        }
        return "", words[row.waits]
    if isinstance(row, catalogue.OfTheTask):
        return "the check of the task", "[test](../tests/cases/test_faults.py)"
    file = "gradient_faults.py" if row in GRADIENT_FAULTS else "faults.py"
    file = "device_faults.py" if row in DEVICE_FAULTS else file
    language = "Triton" if "@triton.jit" in row.top else "PyTorch"
    if row in DEVICE_FAULTS and not SHOWN:
        return "", f"[case](../tests/cases/{file}) in {language}, not run on a GPU yet"
    on = f" on a GPU, {SHOWN}" if row in DEVICE_FAULTS else ""
    gates = " or ".join(f"[{gate}](gates/{gate}.md)" for gate in row.gates)
    under = ", under a contract" if row.declares else ""
    return gates, f"[case](../tests/cases/{file}) in {language}{on}{under}; twin clean"
