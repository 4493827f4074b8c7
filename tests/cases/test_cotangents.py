"""Each kind of cotangent shows a fault of its own, and no way of giving gradients is let off one."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import pytest

from adjudge.contract import Outcome
from adjudge.frontends import kernelbench
from adjudge.judge.verify import Options, verify
from adjudge.worker.client import Zygote

sys.path.insert(0, str(Path(__file__).parent))
from faults import Fault, judged, shown

GATE = ("wrong-gradient",)

OWN = """
    class Square(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.x = x.detach().clone()
            return x * x

        @staticmethod
        def backward(ctx, g):
            x = ctx.x
            {}
            return 2 * x * g
"""
SQUARE = Fault(
    identifier="cotangent",
    report="",
    what="a square, and its backward pass",
    gates=("wrong-gradient",),
    inputs="torch.randn(rows, columns)",
    reference="return x * x",
    top=OWN.format("pass"),
    correct="return Square.apply(x)",
    broken="return Square.apply(x)",
)

#: What a backward pass does wrong, where only one kind of cotangent shows it.
FAULTS = {
    # A row is skipped where its first element is zero.
    "one-hot": "g = torch.where(g[..., :1] != 0, g, 0)",
    # Scaled to its largest element, for a narrow dtype in between.
    "zero": "g = g / g.abs().max() * g.abs().max()",
    # What shares one element is taken for the gradient of a mean.
    "expanded": "g = g if any(g.stride()) or not g.numel() else g / g.numel()",
    # Elements of a row are taken to lie side by side.
    "sliced": "g = g.as_strided(g.shape, (g.stride(0), 1)) if g.stride(1) > 1 else g",
    # Read as it lies in memory, if there are no gaps.
    "transposed": "g = g.mT.reshape(g.shape) if g.mT.is_contiguous() else g",
    # What the forward pass has saved is used up.
    "twice": "ctx.x = x * 0",
}


@pytest.mark.parametrize("kind", FAULTS)
def test_a_fault_shows_under_its_own_kind(kind: str, zygote: Zygote) -> None:
    fault = replace(SQUARE, top=OWN.format(FAULTS[kind]))
    (finding,) = judged(fault, "broken", zygote, gates=GATE, fast=True).violations
    assert finding.violation is not None
    assert finding.violation.probe.cotangent == kind
    assert finding.violation.probe.factors == ("cotangent",)


#: A linear layer, whose backward is a method that is called after the forward pass.
EXPLICIT = """
import torch
from torch import nn

class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.w = nn.Parameter(torch.randn(9, 64))
        self.b = nn.Parameter(torch.randn(9))

    def forward(self, x):
        return (x @ self.w.t() + self.b).detach()

    def backward(self, grad, x):
        flat = grad.reshape(-1, 9)
        return grad @ self.w, flat.t() @ x.reshape(-1, 64), {}
"""
LINEAR = replace(
    SQUARE,
    init="self.w = nn.Parameter(torch.randn(9, 64)); self.b = nn.Parameter(torch.randn(9))",
    reference="return nn.functional.linear(x, self.w, self.b)",
)


@pytest.mark.parametrize("renamed", [False, True])
@pytest.mark.parametrize(("bias", "where"), [("flat.sum(0)", ""), ("flat[0]", "grad b")])
def test_an_explicit_backward_answers_for_every_parameter(
    bias: str, where: str, renamed: bool, zygote: Zygote
) -> None:
    source = EXPLICIT.format(bias)
    if renamed:
        # The seed still gives them the bytes that the reference's have.
        source = source.replace("self.w", "self.matrix").replace("self.b", "self.shift")
    program, candidate = kernelbench.from_source(LINEAR.reference_source(), source, "explicit")
    options = Options(zygote=zygote, examine=False, gates=GATE, fast=bool(where))
    verdict = verify(program, candidate, options)
    (finding,) = verdict.findings
    assert finding.outcome is (Outcome.VIOLATION if where else Outcome.PASS), finding.reason
    assert (finding.violation.where if finding.violation else "") == where
    assert not finding.notes


def test_an_honest_backward_is_clean_under_all_kinds(zygote: Zygote) -> None:
    verdict = judged(SQUARE, "correct", zygote, gates=GATE)
    assert not verdict.violations, shown(verdict)
