"""Verdicts of a GPU beside the interpreter's: what counts as a difference."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "docs" / "audits"))
import agreement_page as page


def line(sha: str, **findings: str) -> dict[str, Any]:
    convicted = [gate for gate, outcome in findings.items() if outcome == "violation"]
    return {
        "sha": sha,
        "problem": "p",
        "findings": findings,
        "reasons": {gate: f"why {gate}" for gate, o in findings.items() if o != "pass"},
        "violations": [{"gate": gate, "message": f"wrong in {gate}"} for gate in convicted],
    }


def test_differences_are_of_one_gate_and_one_kernel() -> None:
    here = [line("a", one="pass", two="violation"), line("b", one="pass"), line("c", one="pass")]
    there = [line("b", one="inconclusive"), line("a", one="violation", two="violation")]
    first, second = page.differing(here, [*there, {"sha": "c", "problem": "p", "fault": "died"}])
    assert (first.sha, first.gate, first.here, first.there) == ("a", "one", "pass", "violation")
    assert first.reason_there == "wrong in one"
    assert first.decided
    assert (second.sha, second.there, second.reason_there) == ("b", "inconclusive", "why one")
    assert not second.decided
