"""Infinite and huge factors of sums: what another honest order gives is right, swallowing is not."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch

from adjudge import arrays
from adjudge.observation import Observation, OutputTensor, Status
from adjudge.oracle import Oracle
from adjudge.program import Arguments

Kernel = Callable[..., torch.Tensor]
INF = float("inf")


def before(x: torch.Tensor, q: torch.Tensor, s: torch.Tensor) -> torch.Tensor:
    return x @ (q.float() * s[:, None]).T


def after(x: torch.Tensor, q: torch.Tensor, s: torch.Tensor) -> torch.Tensor:
    return (x @ q.float().T) * s


def outcome(reference: Kernel, candidate: Kernel, *inputs: torch.Tensor) -> str:
    got = candidate(*(t.clone() for t in inputs))
    output = OutputTensor(
        path="", data=arrays.to_numpy(got), dtype="float32", strides=got.stride(), device="cpu"
    )
    seen = Observation(status=Status.ANSWERED, outputs=(output,), structure="tensor")
    oracle = Oracle(lambda: reference, Arguments(args=inputs), generic=False)
    return oracle.compare(seen, "fp32").outcome


def drawn(stored: str, scale: float) -> tuple[torch.Tensor, ...]:
    generator = torch.Generator().manual_seed(1)
    x, w = torch.randn(4, 16, generator=generator), torch.randn(8, 16, generator=generator)
    s = torch.rand(8, generator=generator) + 0.5
    s[3] = scale
    return x, (100 * w).clamp(-100, 100).to(arrays.torch_dtype(stored)), s


STORED = ("int8", "float8_e4m3fn", "float8_e5m2")
EPILOGUES: dict[str, Kernel] = {
    "none": lambda t: t,
    "relu": torch.relu,
    "softmax": lambda t: torch.softmax(t, -1),
}


@pytest.mark.parametrize("epilogue", EPILOGUES)
@pytest.mark.parametrize("stored", STORED)
@pytest.mark.parametrize("scale", [INF, -INF])
@pytest.mark.parametrize(("reference", "candidate"), [(before, after), (after, before)])
def test_a_scale_may_be_applied_before_or_after_the_product(
    reference: Kernel, candidate: Kernel, scale: float, stored: str, epilogue: str
) -> None:
    end = EPILOGUES[epilogue]
    inputs = drawn(stored, scale)
    ours, theirs = (lambda *t: end(reference(*t))), (lambda *t: end(candidate(*t)))
    # Without the rule this is a conviction: the two differ in class.
    if epilogue == "none":
        assert not torch.equal(ours(*inputs).isnan(), theirs(*inputs).isnan())
    assert outcome(ours, theirs, *inputs) in ("within", "equal", "undecided")


def swallowed(x: torch.Tensor, q: torch.Tensor, s: torch.Tensor) -> torch.Tensor:
    return torch.nan_to_num(after(x, q, s), 0.0, 1e30, -1e30)


def clamped(x: torch.Tensor, q: torch.Tensor, s: torch.Tensor) -> torch.Tensor:
    return after(x, q, s.clamp(-3e4, 3e4))


@pytest.mark.parametrize("candidate", [swallowed, clamped])
@pytest.mark.parametrize("reference", [before, after])
def test_an_infinite_scale_may_not_be_swallowed(reference: Kernel, candidate: Kernel) -> None:
    assert outcome(reference, candidate, *drawn("int8", INF)) == "class"


def test_a_nan_scale_is_nan_in_every_order() -> None:
    inputs = drawn("int8", float("nan"))
    as_infinity: Kernel = lambda *t: torch.nan_to_num(after(*t), nan=INF)  # noqa: E731
    assert outcome(before, as_infinity, *inputs) == "class"


@pytest.mark.parametrize(("reference", "candidate"), [(before, after), (after, before)])
def test_huge_factors_may_overflow_on_the_way(reference: Kernel, candidate: Kernel) -> None:
    x, q, s = drawn("int8", 0.01)
    x[2] = torch.finfo(torch.float32).max / 64
    s = s * 0.001
    assert outcome(reference, candidate, x, q, s) in ("within", "undecided")


# No order of products and sums leads from the reference to these.
FALSE: dict[str, tuple[Kernel, Kernel]] = {
    "rows that each have an infinity of their own": (
        lambda x: (x * torch.tensor([1.0, -1.0, 1.0, -1.0])).sum(-1),
        lambda x: torch.full((2,), INF),
    ),
    "NaN for a maximum": (lambda x: x.amax(-1), lambda x: torch.full((2,), torch.nan)),
    "NaN for a sum": (lambda x: x[:, 0] + 1, lambda x: torch.full((2,), torch.nan)),
    "an infinity past a relu": (
        lambda x: (
            torch.relu(x[:, :1] * torch.tensor([1.0, -1.0, 2.0])) @ torch.tensor([1.0, 2, -3])
        ),
        lambda x: torch.full((2,), INF),
    ),
    "a softmax": (lambda x: torch.softmax(x, -1)[:, 0], lambda x: torch.full((2,), INF)),
}


@pytest.mark.parametrize("name", FALSE)
def test_what_is_no_product_with_a_sum_stays_definite(name: str) -> None:
    reference, candidate = FALSE[name]
    assert outcome(reference, candidate, torch.full((2, 4), INF)) == "class"


def test_a_magnitude_is_kept_by_products_alone() -> None:
    # Two terms of one sign: the sum with magnitudes is no other, and no order gives NaN.
    x, w = torch.tensor([[2.0, 3.0]]), torch.tensor([[1.0], [4.0]])
    reference: Kernel = lambda x, w, s: (x @ w) * s  # noqa: E731
    nan: Kernel = lambda x, w, s: torch.full((1, 1), np.nan)  # noqa: E731
    assert outcome(reference, nan, x, w, torch.tensor([INF])) == "class"
    assert outcome(reference, nan, x, -w * torch.tensor([[1.0], [-1]]), torch.tensor([INF])) in (
        "within",
        "undecided",
    )
