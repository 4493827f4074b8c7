"""The calibration matrix, and what makes its violating halves worth convicting."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from pathlib import Path

import pytest
from rich.console import Console

from adjudge.calibration import pairs
from adjudge.gates import GATES
from adjudge.judge.selfcheck import Matrix, Row, selfcheck, to_json, wilson
from adjudge.report.matrix import matrix_report
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


def test_every_gate_has_its_column_in_a_narrow_terminal() -> None:
    golden = json.loads((ROOT / "docs" / "golden-matrix.json").read_text())["rows"]
    rows = tuple(
        Row(pair=r["pair"], half=r["half"], outcomes=tuple(r["outcomes"].items())) for r in golden
    )
    console = Console(width=80, file=io.StringIO())
    with console.capture() as shown:
        console.print(matrix_report(Matrix(rows=rows)))
    for row, line in zip(rows, shown.get().splitlines()[2:], strict=False):
        name, signs = line[:31], line[31:].split()
        assert (name.strip(), len(signs)) == (f"{row.pair}, {row.half}", len(GATES))


def test_wilson_gives_the_published_interval() -> None:
    """Newcombe 1998, table I: 81 of 263 is 0.2553 to 0.3662; 0 of 20 is 0 to 0.1611."""
    assert wilson(81, 263) == pytest.approx((0.2553, 0.3662), abs=5e-5)
    assert wilson(0, 20) == pytest.approx((0.0, 0.1611), abs=5e-5)
