"""Timing on a GPU: the judge's clock and CUDA events agree of honest kernels."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from adjudge.bench.belief import SLACK
from adjudge.bench.bench import Settings, bench
from adjudge.frontends import kernelbench
from adjudge.judge.verify import Options
from adjudge.worker.client import Zygote

pytestmark = [pytest.mark.gpu, pytest.mark.alone]

REFERENCE = """
import torch


class Model(torch.nn.Module):
    def forward(self, x, y):
        return x * torch.sigmoid(y)


def get_inputs():
    return [torch.randn(2048, 2000), torch.randn(2048, 2000)]


def get_init_inputs():
    return []
"""
KERNEL = """
import torch
import triton
import triton.language as tl


@triton.jit
def gate(x, y, out, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    a, b = tl.load(x + i, i < n), tl.load(y + i, i < n)
    tl.store(out + i, a / (1 + tl.exp(-b)), i < n)


class ModelNew(torch.nn.Module):
    def forward(self, x, y):
        x, y = x.contiguous(), y.contiguous()
        out = torch.empty_like(x)
        gate[(triton.cdiv(x.numel(), 1024),)](x, y, out, x.numel(), BLOCK=1024)
        return out
"""


@pytest.fixture(scope="module")
def timing(gpu: Zygote) -> Iterator[Zygote]:
    with Zygote.start(face="cpu", allow_compiler=True, runner="cuda") as running:
        yield running


def test_both_clocks_agree_and_the_roofline_holds(gpu: Zygote, timing: Zygote) -> None:
    program, candidate = kernelbench.from_source(REFERENCE, KERNEL, "gate")
    options = Options(zygote=gpu, runner="cuda", gates=("wrong-value",), examine=False)
    found = bench(program, candidate, options, Settings(zygote=timing, compiled=False))
    assert found.candidate is not None, found.refused
    assert abs(found.candidate.claimed / found.candidate.seconds - 1) < SLACK
    assert found.checked >= 2
    assert found.fraction is not None
    assert 0.3 < found.fraction < 1.1
