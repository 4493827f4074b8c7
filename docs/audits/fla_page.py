"""The page on flash-linear-attention's backward passes, from the record that benchmarks/fla_backward.py
makes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

RECORD = Path(__file__).resolve().parent / "fla-backward.json"
NAMES = {"flash_linear_attention": "flash-linear-attention", "native": "this repository"}
MEMBERS = {"delta_rule": "DeltaNet", "gated_delta_rule": "Gated DeltaNet"}


def page() -> str:
    record = json.loads(RECORD.read_text(encoding="utf-8"))
    versions = ", ".join(" ".join(pair) for pair in record["versions"])
    return "\n".join(
        [
            "# flash-linear-attention's backward passes",
            "",
            f"{record['device']}, {record['date']}; {versions}. `benchmarks/fla_backward.py` makes the "
            "record, `docs/generate.py` this page.",
            "",
            "Triton from 3.4.0 to before 3.7.1 is known to compile two backward passes of the library "
            "wrongly on Hopper: DeltaNet's, where its autotuner chooses four warps "
            "([984](https://github.com/fla-org/flash-linear-attention/issues/984); releases after "
            "0.5.0 avoid it), and Gated DeltaNet's "
            "([640](https://github.com/fla-org/flash-linear-attention/issues/640); it refuses to run, "
            "and the refusal is switched off here). Each is judged against the recurrence in plain "
            f"PyTorch, for at most {record['budget']:g} s of probes; beside it, this repository's "
            "kernels, judged in the same way.",
            "",
            "| member | of | standing | convicted of | probes | seconds |",
            "| --- | --- | --- | --- | --- | --- |",
            *(_row(name, one) for name, one in record["verdicts"].items()),
            "",
            *(line for name, one in record["verdicts"].items() for line in _evidence(name, one)),
        ]
    )


def _row(name: str, one: dict[str, Any]) -> str:
    convicted = ", ".join(f["gate"] for f in one["findings"] if f["violation"]) or "nothing"
    cells = [_title(name), one["standing"], convicted, str(one["probes"]), f"{one['seconds']:g}"]
    return f"| {' | '.join(cells)} |"


def _title(name: str) -> str:
    member, _, whose = name.partition("/")
    return f"{MEMBERS[member]} | {NAMES[whose]}"


def _evidence(name: str, one: dict[str, Any]) -> list[str]:
    lines = []
    for finding in one["findings"]:
        found = finding["violation"]
        if found:
            lines += [
                f"{_title(name).replace(' | ', ', ')}, {finding['gate']} ({finding['scope']}): "
                f"{found['message']}. At {found['where']}: expected {found['expected']}, got "
                f"{found['got']}, bound {found['bound']}; {found['affected']} of {found['total']} "
                f"elements. Probe `{json.dumps(found['probe'])}`.",
                "",
            ]
    return lines
