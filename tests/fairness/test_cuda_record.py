"""The committed records of a GPU: what they cover, and what they may not hold."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from adjudge.judge.digest import gates_digest

AUDITS = Path(__file__).resolve().parents[2] / "docs" / "audits"
RECORD = AUDITS / "fairness-cuda.jsonl"
#: Tasks of the record, by what was judged of each.
COVERED = {"reference": 60, "compiled": 60}

Line = dict[str, Any]


@pytest.fixture(scope="module")
def record() -> list[Line]:
    return [json.loads(line) for line in RECORD.read_text().splitlines()]


def test_the_record_covers_what_it_says_and_owns_to_its_age(record: list[Line]) -> None:
    """Made where there is a GPU: not again whenever a gate changes, but the page says so."""
    assert {line["kind"] for line in record} == set(COVERED)
    for kind, tasks in COVERED.items():
        problems = [line["problem"] for line in record if line["kind"] == kind]
        assert len(problems) == len(set(problems)) == tasks
    page = (AUDITS / "README.md").read_text()
    for made in {line["gates"] for line in record}:
        assert made == gates_digest() or f"`{made[:8]}`" in page


def test_every_line_is_of_a_gpu_and_none_failed(record: list[Line]) -> None:
    assert not [line for line in record if "fault" in line]
    assert {line["runner"] for line in record} == {"cuda"}
    assert all("NVIDIA" in line["device"] for line in record)


def test_no_honest_candidate_is_convicted(record: list[Line]) -> None:
    assert not [line for line in record if "violation" in line["findings"].values()]
