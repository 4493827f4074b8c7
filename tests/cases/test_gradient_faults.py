"""Every fault of a backward pass is convicted by a gate of its own; its correct twin is clean."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from adjudge.contract import Standing
from adjudge.worker.client import Zygote

sys.path.insert(0, str(Path(__file__).parent))
from faults import Fault, judged, shown
from gradient_faults import GRADIENT_FAULTS

#: What reads backward passes.
GATES = ("wrong-gradient", "out-of-bounds", "mutates-input", "wrong-metadata", "tampers")


@pytest.mark.parametrize("fault", GRADIENT_FAULTS, ids=lambda fault: fault.identifier)
def test_the_fault_is_convicted_and_its_twin_is_not(fault: Fault, zygote: Zygote) -> None:
    broken = judged(fault, "broken", zygote, gates=GATES)
    convicted = {finding.gate for finding in broken.violations}
    assert convicted & set(fault.gates), {f.gate: f.reason for f in broken.findings}
    correct = judged(fault, "correct", zygote, gates=GATES)
    assert correct.standing is Standing.SOUND, shown(correct)
    gradient = next(f for f in correct.findings if f.gate == "wrong-gradient")
    assert gradient.outcome == "pass", gradient.reason
