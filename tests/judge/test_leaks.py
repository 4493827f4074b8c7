"""A cache that outlives its instance is one fault, of one gate, however many gates come upon it."""

from __future__ import annotations

from adjudge.contract import Outcome
from adjudge.frontends import kernelbench
from adjudge.judge.verify import Options, verify
from adjudge.worker.client import Zygote

REFERENCE = """
import torch
import torch.nn as nn

rows, columns = 8, 128


class Model(nn.Module):
    def forward(self, x):
        return torch.cumsum(x, dim=1)


def get_inputs():
    return [torch.randn(rows, columns)]


def get_init_inputs():
    return []
"""

CACHED = """
import torch
import torch.nn as nn

answers = {}


class ModelNew(nn.Module):
    def forward(self, x):
        key = (x.data_ptr(), x._version, tuple(x.shape), x.stride())
        if key not in answers:
            answers.clear()
            answers[key] = torch.cumsum(x, dim=1)
        return answers[key].clone()
"""


def test_what_shows_only_after_other_calls_is_kept_state(zygote: Zygote) -> None:
    program, candidate = kernelbench.from_source(REFERENCE, CACHED, "cached")
    verdict = verify(program, candidate, Options(zygote=zygote))
    assert [f.gate for f in verdict.violations] == ["retains-state"]
    others = [f for f in verdict.findings if f.outcome is Outcome.INCONCLUSIVE]
    assert all("retains-state" in f.reason for f in others)


def test_nothing_is_taken_back_where_kept_state_is_not_asked_for(zygote: Zygote) -> None:
    program, candidate = kernelbench.from_source(REFERENCE, CACHED, "cached")
    asked = ("wrong-value", "shape-dependent", "drops-nonfinite")
    verdict = verify(program, candidate, Options(zygote=zygote, gates=asked))
    assert verdict.violations
