"""The record of the sweep is of the gates that are here, and says where the bounds stand."""

from __future__ import annotations

import json
from pathlib import Path

from adjudge.calibrate import report
from adjudge.calibrate.subjects import SUBJECTS
from adjudge.calibrate.sweep import derived_gates, measure

DOCS = Path(__file__).resolve().parents[2] / "docs"
RECORD = json.loads((DOCS / "calibration.json").read_text(encoding="utf-8"))


def test_the_record_is_of_the_gates_that_are_here() -> None:
    assert tuple(dict.fromkeys(s.gate for s in SUBJECTS)) == derived_gates()
    for row, subject in zip(RECORD["gates"], SUBJECTS, strict=True):
        assert row["gate"] == subject.gate
        assert [c["name"] for c in row["honest"]] == list(subject.honest), "run adjudge calibrate"
        assert [c["name"] for c in row["defects"]] == list(subject.defects), "run adjudge calibrate"


def test_every_honest_case_is_inside_and_every_defect_outside() -> None:
    assert not report.misplaced(RECORD)
    for row in RECORD["gates"]:
        gate = row["gate"]
        assert all(c["over"] < 1 for c in row["honest"]), gate
        bounded = [c["over"] for c in row["defects"] if not c["exact"]]
        assert all(over is None or over > 1 for over in bounded), gate
        assert bounded, gate


def test_few_bits_are_told_apart_without_a_margin() -> None:
    seen = {(g["what"], g["bits"]): g["convicted"] for g in RECORD["gap"]}
    assert all(seen[what, bits] for what in ("accumulator", "factors") for bits in (8, 11))
    assert not seen["accumulator", 24]
    assert not seen["factors", 24]


def test_the_page_and_the_plot_are_made_from_the_record() -> None:
    assert (DOCS / "calibration.md").read_text(encoding="utf-8") == report.page(RECORD)
    assert (DOCS / "calibration.svg").read_text(encoding="utf-8") == report.plot(RECORD)


def test_a_sweep_gives_what_is_recorded() -> None:
    subject = next(s for s in SUBJECTS if s.gate == "scale-variant")
    row = measure(subject)
    (held,) = (r for r in RECORD["gates"] if r["gate"] == subject.gate)
    assert abs(row.trip_element / held["trip_element"] - 1) < 0.1
    assert row.above_noise > 1
    assert row.below_defect > 1
