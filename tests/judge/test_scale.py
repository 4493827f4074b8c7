"""Which points past 2**16 are asked, and what a run there may say."""

from __future__ import annotations

import pytest

from adjudge.contract import Outcome, Standing, Verdict
from adjudge.frontends import kernelbench
from adjudge.judge import scale
from adjudge.judge.replay import replay
from adjudge.judge.verify import Options, verify
from adjudge.worker.client import Zygote

HEAD = """
import time
import torch
import torch.nn as nn

rows = 8
columns = 64

class {}(nn.Module):
    def forward(self, x):
        {}
"""
KERNEL = """
import triton
import triton.language as tl

@triton.jit
def copied(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out_ptr + offsets, tl.load(x_ptr + offsets, mask=offsets < n), mask=offsets < n)
"""
INPUTS = """
def get_inputs():
    return [torch.randn(rows, columns)]

def get_init_inputs():
    return []
"""
COPY = "return x.clone()"
#: One program instance a row.
BY_ROW = """
        x = x.contiguous()
        out = torch.empty_like(x)
        if x.numel():
            copied[(len(x),)](x, out, x.numel(), BLOCK=triton.next_power_of_2(x.shape[1]))
        return out
"""


def asked(
    reference: str, candidate: str, zygote: Zygote, *, large: int = scale.INSTANCES
) -> tuple[Standing, str]:
    """The standing, and what the gate of sizes says of the large run."""
    program, found = kernelbench.from_source(
        HEAD.format("Model", reference) + INPUTS,
        HEAD.format("ModelNew", candidate) + KERNEL,
        "scale",
    )
    options = Options(
        zygote=zygote, examine=False, gates=("shape-dependent",), budget=60.0, large=large
    )
    verdict = verify(program, found, options)
    (finding,) = verdict.findings
    return verdict.standing, " ".join(n for n in finding.notes if "65,537" in n)


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ("return torch.softmax(x, -1)", "rows = 65,537 was asked"),
        # Every row with every other one: four thousand million elements.
        ("return torch.softmax(x @ x.t(), -1) @ x", "does too much"),
        (
            "return nn.functional.scaled_dot_product_attention(x[None], x[None], x[None])[0]",
            "does too much",
        ),
        # An operation for each row.
        ("return torch.cat([torch.sin(row) for row in x.split(1)])", "does too much"),
    ],
)
def test_the_references_work_is_foreseen(body: str, words: str, zygote: Zygote) -> None:
    standing, notes = asked(body, body, zygote)
    assert standing is Standing.SOUND
    assert words in notes


def test_an_instance_a_row_is_too_dear_for_the_interpreter(zygote: Zygote) -> None:
    standing, notes = asked(COPY, BY_ROW, zygote)
    assert standing is Standing.SOUND
    assert "would launch 65,537 program instances" in notes


def test_nothing_is_asked_where_no_instance_is_allowed(zygote: Zygote) -> None:
    assert asked(COPY, COPY, zygote, large=0) == (Standing.SOUND, "")


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ("if len(x) > 65_536: time.sleep(60)\n        return x.clone()", "no answer within"),
        # Two terabytes.
        (
            "if len(x) > 65_536: torch.empty(1 << 39)\n        return x.clone()",
            "too little memory",
        ),
    ],
)
def test_no_answer_for_want_of_time_or_memory_convicts_nobody(
    body: str, words: str, zygote: Zygote, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scale, "LEAST", 2.0)
    standing, notes = asked(COPY, body, zygote)
    assert standing is Standing.SOUND
    assert "gave no verdict" in notes
    assert words in notes


#: Float32 errs alike in each of these additions, and the errors add up.
ONE_BY_ONE = """x = torch.ones_like(x) / 3 + 0 * x
        total = torch.zeros_like(x[:1].sum(0))
        for pair in x.split(2):
            total = total + pair.sum(0)
        return total"""


def test_a_sum_of_so_many_that_rounds_is_not_convicted(zygote: Zygote) -> None:
    reference = "return (torch.ones_like(x) / 3 + 0 * x).sum(0)"
    standing, notes = asked(reference, ONE_BY_ONE, zygote)
    assert standing is Standing.SOUND
    assert "was asked" in notes


def test_what_is_found_past_the_limit_replays(zygote: Zygote) -> None:
    """The mask ends one row early."""
    program, found = kernelbench.from_source(
        HEAD.format("Model", "return 2 * x") + INPUTS,
        HEAD.format("ModelNew", "y = 2 * x\n        y[65_536:] = 0\n        return y"),
        "scale",
    )
    options = Options(zygote=zygote, examine=False, gates=("shape-dependent",))
    verdict = verify(program, found, options)
    (violation,) = (f.violation for f in verdict.findings)
    assert violation is not None
    assert verdict.standing is Standing.FRAGILE
    assert violation.index == (65_536, 0)
    again = replay(violation.replay, program, found, options)
    assert again.same_inputs
    assert again.same_outputs
    assert again.finding is not None


def test_where_the_task_itself_is_as_large_a_crash_convicts(zygote: Zygote) -> None:
    """It answers at the declared width only, so that every run has it."""
    body = """if x.shape[1] != 40_000:
            raise ValueError("no other width")
        if len(x) == 1:
            import os
            os.abort()
        return x.clone()"""
    program, found = kernelbench.from_source(
        HEAD.format("Model", COPY).replace("columns = 64", "columns = 40_000") + INPUTS,
        HEAD.format("ModelNew", body),
        "scale",
    )
    options = Options(zygote=zygote, examine=False, gates=("shape-dependent",), large=0)
    (finding,) = verify(program, found, options).findings
    assert finding.outcome is Outcome.VIOLATION, finding.reason
    assert "died" in finding.reason


def test_a_fault_of_values_is_not_looked_for_among_more_of_them(zygote: Zygote) -> None:
    """Small results are flushed, which one in ten thousand ordinary ones is too."""
    body = "return torch.where(x.abs() < 1e-4, 0.0, x)"
    program, found = kernelbench.from_source(
        HEAD.format("Model", COPY) + INPUTS, HEAD.format("ModelNew", body), "flush"
    )
    gates = ("wrong-value", "shape-dependent")
    verdict = verify(program, found, Options(zygote=zygote, examine=False, gates=gates))
    assert [f.gate for f in verdict.violations] == ["wrong-value"]


def test_a_run_past_the_limit_is_made_beside_the_others_and_kept_or_taken_back(
    zygote: Zygote,
) -> None:
    def verdict(body: str) -> Verdict:
        program, candidate = kernelbench.from_source(
            HEAD.format("Model", COPY) + INPUTS, HEAD.format("ModelNew", body) + KERNEL, "scale"
        )
        options = Options(zygote=zygote, gates=("shape-dependent",), examine=False, lanes=3)
        return verify(program, candidate, options)

    kept = verdict(COPY)
    assert kept.standing is Standing.SOUND
    assert any(f"{scale.SIZE:,} was asked" in note for f in kept.findings for note in f.notes)
    # Wrong at every size: that of the large run is no fault of size.
    taken_back = verdict("return x + (x.shape[0] > 8)")
    assert taken_back.violations
    assert f"={scale.SIZE}" not in str(taken_back.violations[0].violation)
