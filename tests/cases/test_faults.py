"""Every fault is convicted by a gate of its own, and its correct twin is clean under all of them."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import pytest

from adjudge.contract import Standing, Verdict
from adjudge.frontends import kernelbench
from adjudge.frontends.examine import examine
from adjudge.judge.verify import Options, verify
from adjudge.worker.client import Zygote

sys.path.insert(0, str(Path(__file__).parent))
from faults import FAULTS, Fault


def judged(fault: Fault, half: str, zygote: Zygote) -> Verdict:
    """The broken half under its own gates, the twin under all of them."""
    program, candidate = kernelbench.from_source(
        fault.reference_source(), fault.candidate_source(half), f"{fault.identifier}-{half}"
    )
    gates = fault.gates if half == "broken" else None
    return verify(program, candidate, Options(zygote=zygote, examine=False, gates=gates))


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.identifier)
def test_the_fault_is_convicted_and_its_twin_is_not(fault: Fault, zygote: Zygote) -> None:
    broken = judged(fault, "broken", zygote)
    convicted = {finding.gate for finding in broken.violations}
    assert convicted & set(fault.gates), {f.gate: f.reason for f in broken.findings}
    correct = judged(fault, "correct", zygote)
    assert correct.standing is Standing.SOUND, [
        (f.gate, f.violation and f.violation.probe, f.reason) for f in correct.violations
    ]


DEGENERATE = next(fault for fault in FAULTS if fault.identifier == "S02")


@pytest.mark.parametrize(("answer", "doubtful"), [("x.sign().abs() * 0 + 1", True), ("x", False)])
def test_a_task_that_a_constant_passes_is_found_before_the_kernel(
    answer: str, doubtful: bool
) -> None:
    """S48, https://github.com/ScalingIntelligence/KernelBench/pull/108"""
    source = replace(DEGENERATE, reference=f"return {answer}").reference_source()
    found = examine(kernelbench.KernelBenchProgram(source, "S48"))
    assert any("a constant would pass" in words for words in found) == doubtful


def test_there_are_enough_of_them() -> None:
    assert len({fault.identifier for fault in FAULTS}) >= 25
