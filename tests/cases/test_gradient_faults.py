"""Every fault of a backward pass is convicted by a gate of its own; its correct twin is clean."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from adjudge.contract import Standing, Verdict
from adjudge.frontends import kernelbench
from adjudge.judge.verify import Options, verify
from adjudge.worker.client import Zygote

sys.path.insert(0, str(Path(__file__).parent))
from faults import Fault
from gradient_faults import GRADIENT_FAULTS

#: What reads backward passes.
GATES = ("wrong-gradient", "out-of-bounds", "mutates-input", "wrong-metadata", "tampers")


def judged(fault: Fault, half: str, zygote: Zygote) -> Verdict:
    program, candidate = kernelbench.from_source(
        fault.reference_source(), fault.candidate_source(half), f"{fault.identifier}-{half}"
    )
    return verify(program, candidate, Options(zygote=zygote, examine=False, gates=GATES))


@pytest.mark.parametrize("fault", GRADIENT_FAULTS, ids=lambda fault: fault.identifier)
def test_the_fault_is_convicted_and_its_twin_is_not(fault: Fault, zygote: Zygote) -> None:
    broken = judged(fault, "broken", zygote)
    convicted = {finding.gate for finding in broken.violations}
    assert convicted & set(fault.gates), {f.gate: f.reason for f in broken.findings}
    correct = judged(fault, "correct", zygote)
    assert correct.standing is Standing.SOUND, [
        (f.gate, f.violation and f.violation.probe, f.reason) for f in correct.violations
    ]
    gradient = next(f for f in correct.findings if f.gate == "wrong-gradient")
    assert gradient.outcome == "pass", gradient.reason
