"""Every fault is convicted by a gate of its own, and its correct twin is clean under all of them."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import pytest

from adjudge.contract import Standing
from adjudge.frontends import kernelbench
from adjudge.frontends.examine import examine
from adjudge.gates import GATES
from adjudge.worker.client import Zygote

sys.path.insert(0, str(Path(__file__).parent))
from catalogue import CLASSES, REPORTS, rows
from faults import FAULTS, Fault, judged, shown

#: Seconds of probes for a twin where all of them would take too long; the cheap and decisive come first.
BUDGET = 4.0


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.identifier)
def test_the_fault_is_convicted(fault: Fault, zygote: Zygote) -> None:
    broken = judged(fault, "broken", zygote, gates=fault.gates)
    convicted = {finding.gate for finding in broken.violations}
    assert convicted & set(fault.gates), {f.gate: f.reason for f in broken.findings}


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.identifier)
def test_its_twin_is_not(fault: Fault, zygote: Zygote) -> None:
    correct = judged(fault, "correct", zygote, budget=BUDGET)
    assert not correct.violations, shown(correct)


@pytest.mark.slow
@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.identifier)
def test_its_twin_is_sound(fault: Fault, zygote: Zygote) -> None:
    correct = judged(fault, "correct", zygote)
    assert correct.standing is Standing.SOUND, shown(correct)


@pytest.mark.parametrize(
    "fault", [fault for fault in FAULTS if fault.at_scale], ids=lambda fault: fault.identifier
)
def test_its_twin_is_clean_past_65536_rows_too(fault: Fault, zygote: Zygote) -> None:
    correct = judged(fault, "correct", zygote, gates=fault.gates)
    assert correct.standing is Standing.SOUND, shown(correct)
    assert any("65,537 was asked" in note for f in correct.findings for note in f.notes)


FALLBACK = next(fault for fault in FAULTS if fault.identifier == "S47")


def test_a_launch_that_raises_is_no_work_of_a_kernel(zygote: Zygote) -> None:
    """A block of 100 lanes is refused in the kernel, not before its launch."""
    whole = "triton.next_power_of_two(x.shape[1])"
    assert whole in FALLBACK.broken
    fault = replace(FALLBACK, broken=FALLBACK.broken.replace(whole, "100"))
    verdict = judged(fault, "broken", zygote, gates=fault.gates)
    assert [finding.gate for finding in verdict.violations] == ["bypasses-kernel"]


SEED = next(fault for fault in FAULTS if fault.identifier == "S37")


def test_an_address_in_place_of_a_seed_shows_in_another_process(zygote: Zygote) -> None:
    (finding,) = judged(SEED, "broken", zygote, gates=("nondeterministic",)).violations
    assert finding.violation is not None
    assert finding.violation.probe.process


DEGENERATE = next(fault for fault in FAULTS if fault.identifier == "S02")


@pytest.mark.parametrize(("answer", "doubtful"), [("x.sign().abs() * 0 + 1", True), ("x", False)])
def test_a_task_that_a_constant_passes_is_found_before_the_kernel(
    answer: str, doubtful: bool
) -> None:
    """S48, https://github.com/ScalingIntelligence/KernelBench/pull/108"""
    source = replace(DEGENERATE, reference=f"return {answer}").reference_source()
    found = examine(kernelbench.KernelBenchProgram(source, "S48"))
    assert any("a constant would pass" in words for words in found) == doubtful


def test_every_report_has_one_row_and_one_class() -> None:
    identifiers = [row.identifier for row in rows()]
    assert identifiers == [f"S{number:02}" for number in range(1, REPORTS + 1)]
    assert sorted(name for members in CLASSES.values() for name in members) == identifiers


def test_every_case_names_gates_that_there_are() -> None:
    known = {g.CONTRACT.identifier for g in GATES}
    assert {name for row in rows() if isinstance(row, Fault) for name in row.gates} <= known
