"""The kernels with a gate a channel, run on the CPU, against float64."""

from __future__ import annotations

import ctypes
import sys
from pathlib import Path

import pytest
import torch
from torch import Tensor

from gated_recurrence import gla
from gated_recurrence.native import channel
from gated_recurrence.native.kernels import CHANNEL

sys.path.insert(0, str(Path(__file__).parent))
from difference import by_difference
from hosted import available, compiled, on_the_host

pytestmark = pytest.mark.skipif(not available(), reason="no g++ here")

Libraries = dict[str, ctypes.CDLL]
NAMES = ("q", "k", "v", "g", "initial_state")
# Of the emulation's error: the kernels' bar on a GPU, where more heads are summed over. Without a decay
# the final state is a sum of exact products, and what is left is float32.
BAR, FLOAT32 = 1.1, 2.0**-20


@pytest.fixture(scope="module")
def libraries(tmp_path_factory: pytest.TempPathFactory) -> Libraries:
    return compiled(CHANNEL, tmp_path_factory.mktemp("hosted"))


def draw(length: int, heads: int, value_heads: int, gate: float, states: int) -> list[Tensor]:
    source = torch.Generator().manual_seed(length)

    def normal(*shape: int) -> Tensor:
        return torch.randn(shape, generator=source)

    return [
        normal(1, length, heads, 128).bfloat16(),
        torch.nn.functional.normalize(normal(1, length, heads, 128), dim=-1).bfloat16(),
        normal(1, length, value_heads, 128).bfloat16(),
        -gate * normal(1, length, value_heads, 128).abs(),
        normal(states, value_heads, 128, 128),
    ]


def outcome(
    inputs: list[Tensor],
    bounds: list[int],
    libraries: Libraries | None,
    scale: float | None = None,
) -> dict[str, Tensor]:
    """Answers and gradients, of the kernels or, without them, of the portable path."""
    leaves = [x.detach().clone().requires_grad_() for x in inputs]
    cotangents = torch.Generator().manual_seed(1)

    def answers() -> dict[str, Tensor]:
        if libraries is None:
            o, final = gla(
                *leaves[:4],
                scale,
                leaves[4],
                output_final_state=True,
                cu_seqlens=torch.tensor(bounds),
            )
        else:
            o, final = channel.gla(*leaves[:4], scale=scale, initial_state=leaves[4], bounds=bounds)
        assert final is not None
        given = [
            torch.randn(x.shape, generator=cotangents).bfloat16().to(x.dtype) for x in (o, final)
        ]
        gradients = torch.autograd.grad([o, final], leaves, given)
        return {"o": o, "final": final, **dict(zip(NAMES, gradients, strict=True))}

    if libraries is None:
        with by_difference():
            found = answers()
    else:
        with on_the_host(libraries):
            found = answers()
    return {name: x.detach().double() for name, x in found.items()}


@pytest.mark.parametrize(
    ("bounds", "heads", "value_heads", "gate", "scale"),
    [
        ([0, 200], 1, 2, 0.0, None),  # three whole chunks and a short one; a group of value heads
        ([0, 1, 1, 70, 230], 2, 2, 0.1, None),
        # Through strong gates a token or two reach the first state, and the error of its gradient is
        # chance; by a power of two, which both paths may round before or after, they err alike.
        ([0, 200], 2, 4, 5.0, 0.125),
    ],
)
def test_the_kernels_are_as_near_float64_as_the_emulation(
    libraries: Libraries,
    bounds: list[int],
    heads: int,
    value_heads: int,
    gate: float,
    scale: float | None,
) -> None:
    inputs = draw(bounds[-1], heads, value_heads, gate, len(bounds) - 1)
    got = outcome(inputs, bounds, libraries, scale)
    want = outcome([x.double() for x in inputs], bounds, None, scale)
    floor = outcome(inputs, bounds, None, scale)
    for name, exact in want.items():
        error, least = (got[name] - exact).norm(), (floor[name] - exact).norm()
        assert error <= BAR * least or error <= FLOAT32 * exact.norm(), (name, error / least)


def test_closed_gates_and_nan_stay_where_they_are(libraries: Libraries) -> None:
    inputs = draw(130, 1, 1, 0.1, 2)
    inputs[3][0, 40, 0, ::2] = -torch.inf
    whole = outcome(inputs, [0, 70, 130], libraries)
    assert all(bool(x.isfinite().all()) for x in whole.values())
    for name in ("k", "g"):  # what a closed gate forgets has no gradient
        before = whole[name][0, :40, 0, ::2] if name == "k" else whole[name][0, 40, 0, ::2]
        later = whole[name][0, 40:70, 0, ::2]
        assert bool(before.isfinite().all()), name
        assert bool(later.any()), name
    inputs[2][0, 70] = torch.nan
    spoilt = outcome(inputs, [0, 70, 130], libraries)
    for name in ("o", "q", "k", "v", "g"):
        assert torch.equal(spoilt[name][:, :70], whole[name][:, :70]), name
    assert bool(spoilt["o"][:, 70:].isnan().any())
