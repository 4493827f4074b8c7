"""A finding that hangs on what the interpreter cannot know of a GPU is not applicable, not a pass."""

from __future__ import annotations

import importlib.util
from dataclasses import replace

import pytest

from adjudge.contract import Outcome
from adjudge.frontends import kernelbench
from adjudge.judge.verify import Options, verify
from adjudge.worker.client import Zygote

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("triton") is None, reason="triton is not installed"
)

REFERENCE = """
import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x):
        return torch.argmin(torch.where(x.isnan(), torch.inf, torch.round(x)), dim=1)


def get_inputs():
    return [torch.randn(4, 32)]


def get_init_inputs():
    return []
"""
CANDIDATE = """
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def least(x, out, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    lanes = tl.arange(0, BLOCK)
    held = tl.load(x + row * columns + lanes, mask=lanes < columns, other=float("inf"))
    # To the nearest, ties to even.
    rounded = (held + 12582912.0) - 12582912.0
    tl.store(out + row, tl.argmin(rounded, axis=0).to(tl.int64))


class ModelNew(nn.Module):
    def forward(self, x):
        x = x.contiguous()
        out = torch.empty(x.shape[0], dtype=torch.int64, device=x.device)
        if x.numel():
            block = triton.next_power_of_2(x.shape[1])
            least[(x.shape[0],)](x, out, x.shape[1], BLOCK=block)
        return out
"""


def test_which_of_equal_extremes_stands_first_beside_a_nan(zygote: Zygote) -> None:
    program, candidate = kernelbench.from_source(REFERENCE, CANDIDATE, "argmin")
    options = Options(zygote=zygote, examine=False, gates=("wrong-value", "drops-nonfinite"))
    ordinary, special = verify(program, candidate, options).findings
    assert ordinary.outcome is Outcome.PASS
    # What a GPU finds beside a NaN is left out; the other special values are judged.
    assert special.outcome is Outcome.PASS
    assert any("could not be decided" in note for note in special.notes)


def test_where_nothing_else_is_asked_the_gate_does_not_apply(
    zygote: Zygote, monkeypatch: pytest.MonkeyPatch
) -> None:
    from adjudge.gates import drops_nonfinite
    from adjudge.gates.protocol import Scene
    from adjudge.probe import Probe

    def only(scene: Scene) -> list[Probe]:
        return [replace(scene.ordinary, distribution="ties", special="nan@last")]

    monkeypatch.setattr(drops_nonfinite, "plan", only)
    program, candidate = kernelbench.from_source(REFERENCE, CANDIDATE, "argmin")
    options = Options(zygote=zygote, examine=False, gates=("wrong-value", "drops-nonfinite"))
    _, special = verify(program, candidate, options).findings
    assert special.outcome is Outcome.NOT_APPLICABLE
    assert "equal extremes" in special.reason
