"""A backward pass that is right for rows in one dimension, and wrong for rows in two."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import pytest

from adjudge.contract import Outcome, Scope, Standing
from adjudge.frontends import kernelbench
from adjudge.judge.replay import replay
from adjudge.judge.verify import Options
from adjudge.worker.client import Zygote

sys.path.insert(0, str(Path(__file__).parent))
from faults import Fault, judged, shown

GATES = ("wrong-gradient", "shape-dependent", "wrong-metadata")

#: The gradient of the weight is a sum over all rows, and not over the first dimension of the input.
NORM = Fault(
    identifier="rank",
    report="",
    what="the weight's gradient is summed over as many rows as the first dimension has",
    gates=("wrong-gradient",),
    inputs="torch.randn(rows, 12, requires_grad=True)",
    init="self.weight = nn.Parameter(torch.rand(12))",
    reference="return F.rms_norm(x, (x.shape[-1],), self.weight, 1e-6)",
    top="""
        @triton.jit
        def norm_kernel(x_ptr, w_ptr, y_ptr, r_ptr, columns, BLOCK: tl.constexpr):
            row = tl.program_id(0)
            offsets = tl.arange(0, BLOCK)
            mask = offsets < columns
            x = tl.load(x_ptr + row * columns + offsets, mask=mask, other=0.0)
            w = tl.load(w_ptr + offsets, mask=mask, other=0.0)
            scale = 1 / tl.sqrt(tl.sum(x * x, axis=0) / columns + 1e-6)
            tl.store(y_ptr + row * columns + offsets, x * scale * w, mask=mask)
            tl.store(r_ptr + row, scale)

        @triton.jit
        def weight_kernel(x_ptr, r_ptr, g_ptr, d_ptr, rows, columns, BLOCK: tl.constexpr):
            column = tl.program_id(0)
            offsets = tl.arange(0, BLOCK)
            mask = offsets < rows
            x = tl.load(x_ptr + offsets * columns + column, mask=mask, other=0.0)
            g = tl.load(g_ptr + offsets * columns + column, mask=mask, other=0.0)
            scale = tl.load(r_ptr + offsets, mask=mask, other=0.0)
            tl.store(d_ptr + column, tl.sum(g * x * scale, axis=0))

        class Norm(torch.autograd.Function):
            @staticmethod
            def forward(ctx, x, weight, every):
                x = x.contiguous()
                columns = x.shape[-1]
                rows = x.numel() // max(columns, 1)
                y, scale = torch.empty_like(x), torch.empty(rows, device=x.device)
                if x.numel():
                    block = triton.next_power_of_2(columns)
                    norm_kernel[(rows,)](x, weight, y, scale, columns, BLOCK=block)
                ctx.save_for_backward(x, weight, scale)
                ctx.rows = rows if every else x.shape[0]
                return y

            @staticmethod
            def backward(ctx, g):
                x, weight, scale = ctx.saved_tensors
                along = x * scale.reshape(*x.shape[:-1], 1)
                inner = g * weight
                dx = inner - along * (inner * along).mean(-1, keepdim=True)
                dw = torch.zeros_like(weight)
                if x.numel():
                    block = triton.next_power_of_2(ctx.rows)
                    weight_kernel[(x.shape[-1],)](
                        x, scale, g.contiguous(), dw, ctx.rows, x.shape[-1], BLOCK=block
                    )
                return dx * scale.reshape(*x.shape[:-1], 1), dw, None
    """,
    correct="return Norm.apply(x, self.weight, True)",
    broken="return Norm.apply(x, self.weight, False)",
)


def test_the_fault_is_convicted_at_rank_3_and_replayed(zygote: Zygote) -> None:
    broken = judged(NORM, "broken", zygote, gates=GATES)
    (finding,) = broken.violations
    assert (finding.gate, finding.scope) == ("wrong-gradient", Scope.EXTENDED)
    violation = finding.violation
    assert violation is not None
    assert (violation.where, violation.probe.factors) == ("grad weight", ("cotangent", "rank"))
    program, candidate = kernelbench.from_source(
        NORM.reference_source(), NORM.candidate_source("broken"), "rank-broken"
    )
    again = replay(violation.replay, program, candidate, Options(zygote=zygote))
    assert again.same_inputs
    assert again.same_outputs
    assert again.finding is not None
    assert again.probe == violation.probe


REFUSING = "rows, columns = x.shape; return Norm.apply(x, self.weight, False)"


@pytest.mark.parametrize("correct", [NORM.correct, REFUSING])
def test_its_twin_and_one_that_refuses_are_sound(correct: str, zygote: Zygote) -> None:
    verdict = judged(replace(NORM, correct=correct), "correct", zygote, gates=GATES)
    assert verdict.standing is Standing.SOUND, shown(verdict)
    gradient = next(f for f in verdict.findings if f.gate == "wrong-gradient")
    assert gradient.outcome is Outcome.PASS
    assert any("refused" in note for note in gradient.notes) == (correct is REFUSING)


def test_a_reference_for_one_rank_asks_for_no_other(zygote: Zygote) -> None:
    only = "rows, columns = x.shape; return F.rms_norm(x, (columns,), self.weight, 1e-6)"
    verdict = judged(replace(NORM, reference=only), "broken", zygote, gates=GATES)
    assert verdict.standing is Standing.SOUND, shown(verdict)
    assert not [note for f in verdict.findings for note in f.notes if "rank" in note]
