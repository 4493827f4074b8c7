"""Where an intermediate value overflows is a matter of form: nothing definite is asked of it."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from adjudge.inputs.specials import HUGE_MARGIN
from adjudge.observation import Observation, OutputTensor, Status
from adjudge.oracle import Oracle
from adjudge.program import Arguments

HUGE = torch.finfo(torch.float32).max / HUGE_MARGIN * 2


def compared(function: Callable[..., torch.Tensor], *given: torch.Tensor, got: float) -> bool:
    oracle = Oracle(lambda: function, Arguments(args=given), generic=True)
    shape = oracle.native[0].data.shape
    data = np.full(shape, got, dtype=np.float32)
    output = OutputTensor(
        path="", data=data, dtype="float32", strides=(1,) * data.ndim, device="cpu"
    )
    observation = Observation(status=Status.ANSWERED, outputs=(output,), structure="tensor")
    return not oracle.compare(observation, "fp32").broken


@pytest.mark.parametrize("got", [float("inf"), HUGE])
def test_a_norm_of_one_element_may_square_it(got: float) -> None:
    x = torch.full((1, 1), HUGE)
    assert compared(lambda x: torch.linalg.vector_norm(x, dim=-1), x, got=got)


def test_what_the_reference_itself_loses_to_an_overflow_binds_nobody() -> None:
    x, y = torch.tensor([[HUGE, HUGE]]), torch.tensor([[3.0, 4.0]])
    assert compared(lambda x, y: 1 - F.cosine_similarity(x, y), x, y, got=float("nan"))


def test_what_overflows_in_no_form_is_definite() -> None:
    x = torch.full((1, 4), HUGE)
    assert not compared(lambda x: torch.softmax(x, -1), x, got=float("nan"))
    assert not compared(lambda x: x.amax(-1), x, got=float("inf"))
