"""Python's own words on tensors mean in the interpreter what Triton's compiler makes of them."""

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
def kernel(a, out, n, GIVEN: tl.constexpr):
    i = tl.arange(0, 16)
    x = tl.load(a + i)
    mask = x > 0 and i < n
    if GIVEN is not None and n > 3:
        mask = mask or not (i < 15)
    limit = min(n, 12)
    y = max(min(x, 1.0), tl.load(a + 15 - i), -0.5)
    tl.store(out + i, tl.where(mask, y, -limit))


interpreter.install()
a, out = torch.linspace(-3, 3, 16).roll(5), torch.empty(16)
with interpreter.session(interpreter.Options()):
    kernel[(1,)](a, out, 9, 1)
i = torch.arange(16)
mask = (a > 0) & (i < 9) | (i >= 15)
y = torch.maximum(a.clamp(max=1.0), a.flip(0)).clamp(min=-0.5)
assert torch.equal(out, torch.where(mask, y, -9.0)), out
# What the kernel's module finds outside kernels is still Python's.
assert min([3, 2], key=lambda n: -n) == 3 and max(1, 2) == 2 and max("ab") == "b"
"""


def test_each_word_is_meant_element_by_element(
    interpreted: Callable[[str], None],
) -> None:
    interpreted(PROGRAM)
