"""What a candidate does at the declared shape decides, or nothing is decided."""

from __future__ import annotations

from pathlib import Path

import pytest

from adjudge.contract import Standing
from adjudge.frontends import kernelbench
from adjudge.judge.verify import Options, verify
from adjudge.worker.client import Zygote

REFERENCE = Path(__file__).resolve().parents[2] / "examples" / "softmax_tail" / "reference.py"
EVASIONS = {
    "sleeps": "time.sleep(30)",
    "says it cannot": "raise Unsupported('no')",
}


@pytest.mark.parametrize("evasion", EVASIONS)
def test_giving_no_answer_at_the_declared_shape_is_not_sound(evasion: str, zygote: Zygote) -> None:
    source = f"""
import time
import torch
from adjudge.worker.interpreter.session import Unsupported

class ModelNew(torch.nn.Module):
    def forward(self, x):
        if x.shape == (16, 256):
            {EVASIONS[evasion]}
        return torch.softmax(x, -1)
"""
    program, candidate = kernelbench.from_source(REFERENCE.read_text(), source, "evasive")
    assert tuple(program.task.inputs[0].shape) == (16, 256)
    options = Options(zygote=zygote, timeout=2.0, gates=("wrong-value", "shape-dependent"))
    verdict = verify(program, candidate, options)
    assert verdict.standing is not Standing.SOUND
    assert any("declared shape" in words for words in verdict.warnings) or verdict.violations
