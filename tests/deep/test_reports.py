"""Recorded words of compute-sanitizer, read."""

from __future__ import annotations

from pathlib import Path

import pytest

from adjudge.deep.reports import GATES, Report, read
from adjudge.gates import gate

RECORDED = Path(__file__).parent / "recorded"


def text(name: str) -> str:
    return (RECORDED / f"{name}.txt").read_text()


@pytest.mark.parametrize(
    ("name", "what", "line"),
    [
        ("memcheck_store", "Invalid __global__ write of size 4 bytes", 7),
        ("memcheck_load", "Invalid __global__ read of size 16 bytes", 6),
        ("initcheck", "Uninitialized __global__ memory read of size 16 bytes", 6),
    ],
)
def test_an_access_has_its_kernel_and_its_line(name: str, what: str, line: int) -> None:
    reading = read(text(name))
    (report,) = reading.reports
    assert reading.complete
    assert (report.what, report.where) == (what, f"shifted, san.py:{line}")
    assert report.detail.startswith("thread (")


def test_reports_of_one_place_are_one() -> None:
    (report,) = read(text("initcheck")).reports
    assert report.count == text("initcheck").count("Uninitialized __global__")
    assert report.count > 1


def test_a_race_has_both_its_places() -> None:
    reading = read(text("racecheck"))
    assert reading.complete
    assert reading.reports == (
        Report(
            what="Write and Read of shared memory without a barrier between them",
            kernel="reversed(const float *, float *)",
            file="race.cu",
            line=6,
            detail="the other access is at race.cu:8",
            count=1024,
        ),
    )


def test_a_clean_run_is_told_from_one_that_did_not_end() -> None:
    assert read(text("memcheck_clean")).complete
    assert read(text("memcheck_clean")).reports == ()
    assert not read(text("synccheck")).complete
    assert not read("").complete


def test_what_a_program_prints_is_no_report() -> None:
    assert read("Invalid __global__ write of size 4 bytes\n    at k+0x10 in k.py:1").reports == ()


def test_every_tool_belongs_to_a_gate() -> None:
    for name in GATES.values():
        assert gate(name).CONTRACT.identifier == name
