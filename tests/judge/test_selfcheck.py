"""The calibration matrix, and what makes its violating halves worth convicting."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from adjudge.calibration import pairs
from adjudge.judge.selfcheck import selfcheck, to_json, wilson
from adjudge.worker.client import Zygote

ROOT = Path(__file__).resolve().parents[2]
UsualTest = Callable[[str, str], bool]

EXAMPLES = sorted(path.parent for path in (ROOT / "examples").glob("*/reference.py"))


def test_the_matrix_is_the_golden_one(zygote: Zygote) -> None:
    matrix = selfcheck(zygote=zygote)
    assert not matrix.missed
    assert not matrix.false_alarms
    golden = (ROOT / "docs" / "golden-matrix.json").read_text()
    assert json.loads(to_json(matrix)) == json.loads(golden)


@pytest.mark.parametrize("gate", [pair.gate for pair in pairs()])
def test_the_usual_test_accepts_the_violating_half(gate: str, usual_test: UsualTest) -> None:
    pair = next(p for p in pairs() if p.gate == gate)
    assert usual_test(pair.reference, pair.violating)
    assert usual_test(pair.reference, pair.conforming)


@pytest.mark.parametrize("folder", EXAMPLES, ids=lambda folder: folder.name)
def test_the_usual_test_accepts_the_broken_example(folder: Path, usual_test: UsualTest) -> None:
    reference = (folder / "reference.py").read_text()
    assert usual_test(reference, (folder / "broken.py").read_text())


def test_wilson_gives_the_published_interval() -> None:
    """Newcombe 1998, table I: 81 of 263 is 0.2553 to 0.3662; 0 of 20 is 0 to 0.1611."""
    assert wilson(81, 263) == pytest.approx((0.2553, 0.3662), abs=5e-5)
    assert wilson(0, 20) == pytest.approx((0.0, 0.1611), abs=5e-5)
