"""What an answer was kept in shows in the answer, and only where it must."""

from __future__ import annotations

import pytest
import torch

from adjudge.inputs.sampler import Sampler
from adjudge.observation import Observation, OutputTensor, Status
from adjudge.oracle import Oracle
from adjudge.program import Arguments

DATA = torch.randn(16, 64, generator=torch.Generator().manual_seed(0)).half()


def compared(function: object, answer: torch.Tensor, x: torch.Tensor = DATA) -> str:
    oracle = Oracle(lambda: function, Arguments(args=(x,)), generic=True)  # type: ignore[arg-type, return-value]
    output = OutputTensor(
        path="", data=answer.numpy(), dtype="float16", strides=tuple(answer.stride()), device="cpu"
    )
    observation = Observation(status=Status.ANSWERED, outputs=(output,), structure="tensor")
    return oracle.compare(observation, "fp16xfp32").outcome


def gelu(x: torch.Tensor) -> torch.Tensor:
    return torch.nn.functional.gelu(x)


def test_a_float16_answer_that_went_through_bfloat16_is_convicted() -> None:
    honest = gelu(DATA.double())
    assert compared(gelu, honest.half()) in ("equal", "within")
    assert compared(gelu, honest.bfloat16().half()) == "value"


@pytest.mark.parametrize(
    ("function", "x"),
    [
        (lambda x: x.clamp(-1, 1), DATA.bfloat16().half()),
        (lambda x: (x > 0).to(x.dtype), DATA),
        (lambda x: x * 0 + 1.001, DATA),
        (lambda x: x.bfloat16().to(x.dtype), DATA),
    ],
    ids=["on the grid already", "zeros and ones", "one value", "asked for"],
)
def test_answers_that_are_so_by_nature_are_not(function: object, x: torch.Tensor) -> None:
    assert callable(function)
    answer = function(x)
    # Not equal bit for bit, so that it is looked at.
    answer[0, 0] = answer[0, 0].nextafter(torch.tensor(torch.inf, dtype=torch.float16))
    assert compared(function, answer, x) in ("equal", "within")
    assert compared(function, function(x).bfloat16().half(), x) in ("equal", "within")


@pytest.mark.parametrize("length", [32, 64, 128, 256, 1000])
@pytest.mark.parametrize("bits", [11, 8])
def test_a_narrow_running_sum_drifts(length: int, bits: int) -> None:
    dtype = {11: torch.float16, 8: torch.bfloat16}[bits]
    x = torch.from_numpy(Sampler(3, f"drift-{bits}").floats((4, length), "normal"))
    assert (x.to(dtype).double() == x).all()
    for terms in (x, x * x):
        total = torch.zeros(4, dtype=dtype)
        for column in terms.float().unbind(1):
            total = (total.float() + column).to(dtype)
        exact = terms.sum(1)
        error = ((total.double() - exact) / exact).abs() * 2.0**bits
        # Half a unit in the last place is at most one; storing the sum alone costs no more.
        assert (error > 2).all()
        assert error.isfinite().all()
