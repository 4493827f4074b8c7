"""The kernels with one gate a head, run on the CPU, against float64."""

from __future__ import annotations

import ctypes
import sys
from pathlib import Path

import pytest
import torch
from torch import Tensor

from gated_recurrence import gated_delta_rule, simple_gla
from gated_recurrence.native import gated_delta_rule as native
from gated_recurrence.native.kernels import DELTA, PLAIN

sys.path.insert(0, str(Path(__file__).parent))
from hosted import available, compiled, on_the_host

pytestmark = pytest.mark.skipif(not available(), reason="no g++ here")

Libraries = dict[str, ctypes.CDLL]
NAMES = ("q", "k", "v", "g", "initial_state", "beta")
# Of the emulation's error. dg and dbeta of two heads have few independent errors, whose ratio scatters.
BAR, FLOAT32 = 1.1, 2.0**-20
SCATTER = {"g": 1.5, "beta": 1.5}


@pytest.fixture(scope="module")
def libraries(tmp_path_factory: pytest.TempPathFactory) -> dict[bool, Libraries]:
    return {
        delta: compiled(family, tmp_path_factory.mktemp("hosted"))
        for delta, family in ((True, DELTA), (False, PLAIN))
    }


def draw(length: int, gate: float, states: int, delta: bool) -> list[Tensor]:
    """One head, two value heads."""
    source = torch.Generator().manual_seed(length)

    def normal(*shape: int) -> Tensor:
        return torch.randn(shape, generator=source)

    found = [
        normal(1, length, 1, 128).bfloat16(),
        torch.nn.functional.normalize(normal(1, length, 1, 128), dim=-1).bfloat16(),
        normal(1, length, 2, 128).bfloat16(),
        -gate * normal(1, length, 2).abs(),
        normal(states, 2, 128, 128),
    ]
    return [*found, normal(1, length, 2).sigmoid()] if delta else found


def outcome(
    inputs: list[Tensor], bounds: list[int], libraries: Libraries | None
) -> dict[str, Tensor]:
    """Answers and gradients, of the kernels or, without them, of the portable path."""
    leaves = [x.detach().clone().requires_grad_() for x in inputs]
    q, k, v, g, state, *beta = leaves
    source = torch.Generator().manual_seed(1)

    def gradients(o: Tensor, final: Tensor | None) -> dict[str, Tensor]:
        assert final is not None
        given = [torch.randn(x.shape, generator=source).bfloat16().to(x.dtype) for x in (o, final)]
        found = zip(NAMES, torch.autograd.grad([o, final], leaves, given), strict=False)
        return {"o": o, "final": final, **dict(found)}

    if libraries is None:
        call = gated_delta_rule if beta else simple_gla
        found = gradients(*call(q, k, v, g, *beta, None, state, True, torch.tensor(bounds)))
    else:
        with on_the_host(libraries):
            answers = native.gated_delta_rule(
                *(q, k, v, g, beta[0] if beta else None),
                scale=None,
                initial_state=state,
                bounds=bounds,
                recompute_states=False,
            )
            found = gradients(*answers)
    return {name: x.detach().double() for name, x in found.items()}


@pytest.mark.parametrize("gate", [0.1, 5.0])
@pytest.mark.parametrize("delta", [True, False])
def test_the_kernels_are_as_near_float64_as_the_emulation(
    libraries: dict[bool, Libraries], delta: bool, gate: float
) -> None:
    bounds = [0, 1, 1, 70, 230]
    inputs = draw(bounds[-1], gate, len(bounds) - 1, delta)
    got = outcome(inputs, bounds, libraries[delta])
    want = outcome([x.double() for x in inputs], bounds, None)
    floor = outcome(inputs, bounds, None)
    for name, exact in want.items():
        error, least = (got[name] - exact).norm(), (floor[name] - exact).norm()
        near = error <= BAR * SCATTER.get(name, 1.0) * least or error <= FLOAT32 * exact.norm()
        assert near, (name, error / least)


def test_closed_gates_and_rates_of_zero_have_gradients_of_their_own(
    libraries: dict[bool, Libraries],
) -> None:
    inputs = draw(80, 0.1, 1, True)
    inputs[3][0, 40], inputs[3][0, 70], inputs[5][0, 20:30] = -200.0, -30.0, 0.0
    got = outcome(inputs, [0, 80], libraries[True])
    want = outcome([x.double() for x in inputs], [0, 80], None)
    for name in ("k", "v"):  # of a token that writes nothing
        assert not bool(got[name][0, 20:30].any()), name
    assert not bool(got["g"][0, 40].any())
    nearly = got["g"][0, 70], want["g"][0, 70]
    torch.testing.assert_close(*nearly, rtol=0.02, atol=0.0)
    assert float(nearly[1].abs().max()) < 1e-9
    for name in ("beta", "g"):
        error = got[name][0, 20:30] - want[name][0, 20:30]
        assert float(error.norm() / want[name][0, 20:30].norm()) < 2.0**-6, name
