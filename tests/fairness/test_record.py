"""The committed record of the fairness benchmark says what it must, and owns to its age.

References are judged again whenever gates, oracle or inputs change: ten minutes. Compiled references and
mutants take hours; the page says of them under which gates they were judged.
"""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from adjudge.judge.digest import gates_digest

RECORD = Path(__file__).resolve().parents[2] / "docs" / "audits" / "fairness.jsonl"
TASKS = 60
HONEST = ("reference", "compiled")
FOUND = 0.9
#: Verdicts that say nothing of the candidate: what was planted changes no bit, or the compiler fails.
VACUOUS = ("equivalent", "unbuilt")

#: How the reason of a finding begins that no probe was left for.
BUDGET = ("budget", "no pair of runs could be made")

Line = dict[str, Any]


@pytest.fixture(scope="module")
def record() -> list[Line]:
    return [json.loads(line) for line in RECORD.read_text().splitlines()]


def test_references_were_judged_by_these_gates(record: list[Line]) -> None:
    made = {line["gates"] for line in record if line["kind"] == "reference"}
    words = "run benchmarks/fairness.py --no-mutants again: gates, oracle or inputs have changed"
    assert made == {gates_digest()}, words


def test_each_kind_was_judged_by_one_set_of_gates_and_the_page_says_which(
    record: list[Line],
) -> None:
    page = (RECORD.parent / "README.md").read_text()
    for kind in {line["kind"] for line in record}:
        (made,) = {line["gates"] for line in record if line["kind"] == kind}
        assert made == gates_digest() or f"`{made[:8]}`" in page


@pytest.mark.parametrize("kind", HONEST)
def test_each_task_was_judged_once_and_nothing_failed(record: list[Line], kind: str) -> None:
    problems = [line["problem"] for line in record if line["kind"] == kind]
    assert len(problems) == len(set(problems)) == TASKS
    assert not [line for line in record if "fault" in line]


@pytest.mark.parametrize("kind", HONEST)
def test_no_honest_candidate_is_convicted(record: list[Line], kind: str) -> None:
    lines = [line for line in record if line["kind"] == kind]
    assert not [line for line in lines if "violation" in line["findings"].values()]


def test_nearly_all_findings_on_references_are_passes(record: list[Line]) -> None:
    """What a budget leaves out counts as not passed: a starved gate has said nothing."""
    outcomes = Counter(
        outcome
        for line in record
        if line["kind"] == "reference"
        for gate, outcome in line["findings"].items()
        if outcome != "not_applicable" or line["reasons"][gate].startswith(BUDGET)
    )
    assert outcomes["pass"] >= FOUND * outcomes.total() > 0


def test_nearly_all_mutants_are_convicted(record: list[Line]) -> None:
    planted = [
        line for line in record if line["kind"] not in HONEST and line["standing"] not in VACUOUS
    ]
    assert len({line["kind"] for line in planted}) == 5
    convicted = [line for line in planted if "violation" in line["findings"].values()]
    assert len(convicted) >= FOUND * len(planted) > 0
