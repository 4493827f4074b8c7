"""The stored fairness record: of these very gates, without a false alarm, and sharp."""

from __future__ import annotations

import json
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest

from adjudge.judge.digest import gates_digest

RECORD = Path(__file__).resolve().parents[2] / "docs" / "audits" / "fairness.jsonl"


@pytest.fixture(scope="module")
def lines() -> list[dict[str, Any]]:
    return [json.loads(line) for line in RECORD.read_text().splitlines()]


def test_it_was_made_by_these_gates(lines: list[dict[str, Any]]) -> None:
    stale = {line["gates"] for line in lines} - {gates_digest()}
    assert not stale, "run benchmarks/fairness.py again: the gates have changed since"


def test_no_reference_is_convicted(lines: list[dict[str, Any]]) -> None:
    references = [line for line in lines if line["kind"] == "reference"]
    assert len(references) == 60
    assert not [line["problem"] for line in references if "fault" in line]
    assert not [
        (line["problem"], gate)
        for line in references
        for gate, outcome in line["findings"].items()
        if outcome == "violation"
    ]


def test_nine_of_ten_findings_that_apply_are_decided(lines: list[dict[str, Any]]) -> None:
    outcomes = [
        outcome
        for line in lines
        if line["kind"] == "reference"
        for outcome in line["findings"].values()
        if outcome != "not_applicable"
    ]
    assert outcomes.count("pass") >= 0.9 * len(outcomes)


def test_nine_of_ten_mutants_are_convicted(lines: list[dict[str, Any]]) -> None:
    kinds: dict[str, list[bool]] = defaultdict(list)
    for line in lines:
        if line["kind"] not in ("reference", "compiled") and line["standing"] != "equivalent":
            kinds[line["kind"]].append("violation" in line["findings"].values())
    assert len(kinds) == 5
    caught = [hit for hits in kinds.values() for hit in hits]
    assert sum(caught) >= 0.9 * len(caught), {k: f"{sum(v)}/{len(v)}" for k, v in kinds.items()}
