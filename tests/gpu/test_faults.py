"""Faults that only a GPU shows are convicted there, and their correct twins are sound."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import pytest

from adjudge.contract import Standing
from adjudge.worker.client import Zygote
from adjudge.worker.streams import LATE

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "cases"))
from device_faults import DEVICE_FAULTS
from faults import FAULTS, Fault, judged, shown

pytestmark = pytest.mark.gpu

LANES = 2


@pytest.mark.parametrize("fault", DEVICE_FAULTS, ids=lambda fault: fault.identifier)
def test_the_fault_is_convicted(fault: Fault, gpu: Zygote) -> None:
    broken = judged(fault, "broken", gpu, runner="cuda", gates=fault.gates)
    (finding,) = broken.violations
    assert finding.violation is not None
    assert LATE in finding.violation.message


@pytest.mark.parametrize("fault", DEVICE_FAULTS, ids=lambda fault: fault.identifier)
def test_its_twin_is_not(fault: Fault, gpu: Zygote) -> None:
    correct = judged(fault, "correct", gpu, runner="cuda", lanes=LANES)
    assert correct.standing is Standing.SOUND, shown(correct)


def test_work_on_the_callers_own_stream_is_in_order(gpu: Zygote) -> None:
    """The stream is named, and nothing is put on another one."""
    (pooled,) = (fault for fault in DEVICE_FAULTS if fault.identifier == "S53")
    source = "side = torch.cuda.Stream()"
    assert source in pooled.top
    own = replace(pooled, top=pooled.top.replace(source, "side = torch.cuda.current_stream()"))
    verdict = judged(own, "broken", gpu, runner="cuda", gates=own.gates)
    assert verdict.standing is Standing.SOUND, shown(verdict)


EXPANDED = next(fault for fault in FAULTS if fault.identifier == "S15")


def test_expanded_values_are_convicted_where_one_key_is_left_over(gpu: Zygote) -> None:
    """The report is of a GPU: here too the fault needs both the layout and the length."""
    broken = judged(EXPANDED, "broken", gpu, runner="cuda", gates=EXPANDED.gates, lanes=LANES)
    assert {f.gate for f in broken.violations} & set(EXPANDED.gates)
    correct = judged(EXPANDED, "correct", gpu, runner="cuda", gates=EXPANDED.gates, lanes=LANES)
    assert correct.standing is Standing.SOUND, shown(correct)
