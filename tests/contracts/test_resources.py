"""Chips and memory that a contract names hold the candidate's kernels and calls."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

from adjudge.contract import Outcome, Verdict
from adjudge.contracts.draft import draft
from adjudge.contracts.file import load
from adjudge.errors import UsageError
from adjudge.frontends import kernelbench
from adjudge.judge.verify import Options, verify
from adjudge.worker.client import Zygote

REFERENCE = """
import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, a, b):
        return a @ b


def get_inputs():
    return [torch.randn(128, 128), torch.randn(128, 128)]


def get_init_inputs():
    return []
"""
TRITON = """
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def product(a, b, out, m, n, k, SIDE: tl.constexpr):
    rows, columns, depth = tl.arange(0, SIDE), tl.arange(0, SIDE), tl.arange(0, SIDE)
    total = tl.zeros((SIDE, SIDE), dtype=tl.float32)
    for start in range(0, k, SIDE):
        inner = start + depth
        x = tl.load(a + rows[:, None] * k + inner, mask=(rows[:, None] < m) & (inner < k), other=0.0)
        y = tl.load(
            b + inner[:, None] * n + columns, mask=(inner[:, None] < k) & (columns < n), other=0.0
        )
        total += tl.dot(x, y, input_precision="ieee")
    where = out + rows[:, None] * n + columns
    tl.store(where, total, mask=(rows[:, None] < m) & (columns < n))


class ModelNew(nn.Module):
    def forward(self, a, b):
        a, b = a.contiguous(), b.contiguous()
        (m, k), n = a.shape, b.shape[1]
        out = torch.empty(m, n, device=a.device)
        if out.numel():
            side = max(16, triton.next_power_of_2(max(m, n)))
            product[(1,)](a, b, out, m, n, k, SIDE=side, num_warps=8, num_stages=STAGES)
        return out
"""
TORCH = """
import torch


class ModelNew(torch.nn.Module):
    def forward(self, a, b):
        return BODY
"""


def judged(folder: Path, zygote: Zygote, source: str, resources: str) -> Verdict:
    program, candidate = kernelbench.from_source(REFERENCE, source, "k")
    path = folder / "contract.toml"
    path.write_text(f"{draft(program)}\n[postcondition.resources]\n{resources}\n", encoding="utf-8")
    gates = ("wrong-value", "resource-excess")
    options = Options(zygote=zygote, examine=False, contract=load(path), gates=gates)
    return verify(program, candidate, options)


@pytest.mark.skipif(importlib.util.find_spec("triton") is None, reason="triton is not installed")
@pytest.mark.parametrize(("stages", "kept"), [(1, True), (4, False)])
def test_a_kernel_must_fit_the_declared_chip(
    tmp_path: Path, zygote: Zygote, stages: int, kept: bool
) -> None:
    source = TRITON.replace("STAGES", str(stages))
    verdict = judged(tmp_path, zygote, source, 'chips = ["sm_80"]\nspills = 100000')
    finding = verdict.findings[1]
    assert (finding.outcome is Outcome.PASS) == kept, finding
    if kept:
        assert any("sm_80" in note for note in finding.notes)
    else:
        assert finding.violation is not None
        assert finding.violation.signature == "excess"
        assert "sm_80 has 166,912" in finding.violation.message


@pytest.mark.parametrize(
    ("body", "kept"), [("a @ b", True), ("(a[:, :, None] * b[None]).sum(1)", False)]
)
def test_a_call_takes_no_more_than_so_many_times_the_references_memory(
    tmp_path: Path, zygote: Zygote, body: str, kept: bool
) -> None:
    verdict = judged(tmp_path, zygote, TORCH.replace("BODY", body), "memory = 2.0")
    finding = verdict.findings[1]
    assert (finding.outcome is Outcome.PASS) == kept, finding
    if finding.violation is not None:
        assert finding.violation.signature == "memory"


@pytest.mark.parametrize(
    ("resources", "words"),
    [
        ('chips = ["sm_91"]', "there is no chip named 'sm_91'"),
        ("spills = 3", "no chip is named on which"),
        ('chips = ["sm_90"]\nspills = -1', "spills is -1"),
        ("memory = 0.0", "memory is 0.0"),
        ("memmory = 2.0", "there is no field postcondition.resources.memmory"),
    ],
)
def test_mistakes_are_told(tmp_path: Path, resources: str, words: str) -> None:
    program, _ = kernelbench.from_source(REFERENCE, TORCH.replace("BODY", "a @ b"), "k")
    path = tmp_path / "contract.toml"
    path.write_text(f"{draft(program)}\n[postcondition.resources]\n{resources}\n", encoding="utf-8")
    with pytest.raises(UsageError, match=words) as raised:
        load(path)
    assert raised.value.where.startswith(f"{path}:")
