"""What Triton's interpreter lacks by accident, and the corrected one has."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable

import pytest

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("triton") is None, reason="triton is not installed"
)

PROGRAM = """
import torch
import triton
import triton.language as tl

from adjudge.worker import interpreter


@triton.jit
def scaled(a, out):
    i = tl.arange(0, 16)
    x = tl.load(a + i)
    tl.store(out + i, tl.where(x > 0, x * 0.1 + 1.0, float("-inf")))


@triton.jit
def inverted(a, out):
    i = tl.arange(0, 16)
    tl.store(out + i, ~tl.load(a + i))


@triton.jit
def total(a, out):
    x = tl.load(a + tl.arange(0, 16))
    tl.store(out, tl.sum(x) // 3)


@triton.jit
def marked(a, out):
    x = tl.load(a + tl.arange(0, 16))
    tl.store(out, tl.sum((x > 3).to(tl.int32)))
    tl.store(out + 1 + tl.arange(0, 16), tl.cumsum((x > 3).to(tl.int32), axis=0))


interpreter.install()
with interpreter.session(interpreter.Options()):
    a = torch.linspace(-3, 3, 16).to(torch.bfloat16)
    out = torch.empty_like(a)
    scaled[(1,)](a, out)
    # The constant is a bfloat16 as well: every step rounds.
    tenth = torch.tensor(0.1, dtype=torch.bfloat16)
    assert torch.equal(out, torch.where(a > 0, a * tenth + 1, float("-inf"))), out

    a = torch.arange(0, 256, 16, dtype=torch.uint8)
    out = torch.empty_like(a)
    inverted[(1,)](a, out)
    assert torch.equal(out, ~a), out

    # A sum in 32 bits wraps.
    a = torch.full((16,), 2**28, dtype=torch.int32)
    a[0] += 30
    out = torch.empty(1, dtype=torch.int32)
    total[(1,)](a, out)
    assert out.item() == 10, out

    # Truth values are counted, not joined.
    a = torch.arange(16, dtype=torch.int32)
    out = torch.empty(17, dtype=torch.int32)
    marked[(1,)](a, out)
    assert out[0] == 12 and torch.equal(out[1:], (a > 3).cumsum(0).int()), out
"""


def test_constants_of_bfloat16_inversion_of_unsigned_and_sums_that_wrap(
    interpreted: Callable[[str], None],
) -> None:
    interpreted(PROGRAM)
