"""The bound on the mean square: sharp where many errors average out, wide where one reaches them all."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from adjudge.observation import Observation, OutputTensor, Status
from adjudge.oracle import Oracle
from adjudge.oracle.regimes import regime
from adjudge.oracle.statistics import (
    FAMILY_RATE,
    RMS_MULTIPLE,
    SLACK,
    mean_square_multiple,
    student_quantile,
)
from adjudge.program import Arguments

#: The sum of 4096 terms errs by 64 roundings, the division after it by one: all elements err alike.
DATA = torch.rand(1, 4096, generator=torch.Generator().manual_seed(0)) + 0.5


def shared(x: torch.Tensor) -> torch.Tensor:
    return x / x.sum(-1, keepdim=True)


def single(x: torch.Tensor) -> torch.Tensor:
    return torch.sin(x)


def observed(values: np.ndarray) -> Observation:
    data = values.astype(np.float32)
    strides = tuple(n // data.itemsize for n in data.strides)
    output = OutputTensor(path="", data=data, dtype="float32", strides=strides, device="cpu")
    return Observation(status=Status.ANSWERED, outputs=(output,), structure="tensor")


def moved(oracle: Oracle, size: float) -> Observation:
    """Every element off by so many envelopes, in one direction."""
    envelope = oracle.envelope(regime("fp32"), 128)[0]
    return observed(oracle.exact[0].data + size * envelope)


def oracle(function: object) -> Oracle:
    return Oracle(lambda: function, Arguments(args=(DATA,)), generic=True)  # type: ignore[arg-type, return-value]


def test_one_error_that_all_elements_share_may_be_as_large_as_one_error() -> None:
    made = oracle(shared)
    assert made.effective(regime("fp32"), 32)[0] < 8
    assert made.compare(moved(made, 5.0), "fp32", confirm=True).ok
    assert made.compare(moved(made, 60.0), "fp32", confirm=True).broken


def test_many_errors_of_that_size_are_not_honest() -> None:
    made = oracle(single)
    assert made.effective(regime("fp32"), 32)[0] > 100
    assert made.compare(moved(made, 8.0), "fp32", confirm=True).broken


@pytest.mark.parametrize("samples", [8, 32, 128])
def test_it_is_never_stricter_than_the_bound_on_one_element(samples: int) -> None:
    one = SLACK * student_quantile(FAMILY_RATE / 2, samples)
    assert mean_square_multiple(samples, 1) >= one
    limits = [mean_square_multiple(samples, n) for n in (1, 2, 4, 16, 64, 1024, 10**9)]
    assert limits == sorted(limits, reverse=True)
    assert limits[-1] == RMS_MULTIPLE


def test_its_rate_is_at_most_the_familys() -> None:
    """Simulated at a rate that can be: a hundred thousand ratios at one in a thousand."""
    draws = np.random.default_rng(0)
    for n, m in ((1, 8), (4, 8), (16, 32)):
        ratio = draws.chisquare(n, 100_000) / n / (draws.chisquare(n * m, 100_000) / (n * m))
        beyond = np.sqrt(ratio) > mean_square_multiple(m, n) / SLACK
        assert not beyond.any()
        t2 = 1.0
        while n / 2 * ((m + 1) * np.log((m + t2) / (m + 1)) - np.log(t2)) < np.log(1e3):
            t2 *= 1.01
        assert (ratio > t2).mean() <= 1e-3
