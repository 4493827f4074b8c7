"""What a candidate does at the declared shape decides, or nothing is decided."""

from __future__ import annotations

from pathlib import Path

import pytest

from adjudge.contract import Standing
from adjudge.frontends import kernelbench
from adjudge.judge.replay import replay
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


def test_what_is_right_at_the_declared_shape_alone_replays(zygote: Zygote) -> None:
    source = """
import torch

class ModelNew(torch.nn.Module):
    def forward(self, x):
        return torch.softmax(x, -1) * (1 if x.shape == (16, 256) else 2)
"""
    program, candidate = kernelbench.from_source(REFERENCE.read_text(), source, "by heart")
    verdict = verify(program, candidate, Options(zygote=zygote))
    assert verdict.standing is Standing.FRAGILE
    (finding,) = verdict.violations
    assert finding.gate == "shape-dependent"
    assert finding.violation is not None
    again = replay(finding.violation.replay, program, candidate, Options(zygote=zygote))
    assert again.finding is not None
    assert again.same_outputs
