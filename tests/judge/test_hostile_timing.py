"""A candidate that will not answer the probes that would convict it is not acquitted."""

from __future__ import annotations

import pytest

from adjudge.contract import Standing
from adjudge.frontends import kernelbench
from adjudge.judge import docket
from adjudge.judge.verify import Options, verify
from adjudge.worker.client import Zygote

REFERENCE = """
import torch
import torch.nn as nn

rows = 4
columns = 16

class Model(nn.Module):
    def forward(self, x):
        return torch.relu(x)

def get_inputs():
    return [torch.randn(rows, columns)]

def get_init_inputs():
    return []
"""
HANGING = """
import time
import torch
import torch.nn as nn

class ModelNew(nn.Module):
    def forward(self, x):
        if not torch.isfinite(x).all():
            time.sleep(600)
        return torch.relu(x)
"""


def test_hanging_on_what_would_convict_is_a_violation(
    zygote: Zygote, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(docket, "PATIENT_SECONDS", 2.0)
    program, candidate = kernelbench.from_source(REFERENCE, HANGING, "hanging")
    options = Options(zygote=zygote, timeout=1.0, gates=("wrong-value", "drops-nonfinite"))
    verdict = verify(program, candidate, options)
    assert verdict.standing is Standing.FRAGILE
    (finding,) = verdict.violations
    assert finding.gate == "drops-nonfinite"
    assert finding.violation is not None
    assert finding.violation.signature == "hung"
