"""The native kernels with a gate a channel, on Hopper, against float64."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import torch
from torch import Tensor

from gated_recurrence import gla, portable
from gated_recurrence.native import dispatch

sys.path.insert(0, str(Path(__file__).parent))
from difference import by_difference
from test_native import above_the_bar, on_hopper

NAMES = ("q", "k", "v", "g", "initial_state")
Outcome = dict[str, Tensor]


def draw(
    batch: int,
    length: int,
    heads: int,
    value_heads: int,
    gate: float,
    states: int,
    key_size: int = 128,
    value_size: int = 128,
) -> list[Tensor]:
    source = torch.Generator("cuda").manual_seed(length + heads)

    def normal(*shape: int) -> Tensor:
        return torch.randn(shape, generator=source, device="cuda")

    key = torch.nn.functional.normalize(normal(batch, length, heads, key_size), dim=-1)
    return [
        normal(batch, length, heads, key_size).bfloat16(),
        key.bfloat16(),
        normal(batch, length, value_heads, value_size).bfloat16(),
        -gate * normal(batch, length, value_heads, key_size).abs(),
        normal(states, value_heads, key_size, value_size),
    ]


def outcome(inputs: list[Tensor], bounds: list[int] | None, native: bool = True) -> Outcome:
    """The answers, and the gradients under the names of what they are of."""
    leaves = [x.detach().clone().requires_grad_() for x in inputs]
    cu = None if bounds is None else torch.tensor(bounds, device="cuda")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(dispatch, "GATES_A_CHANNEL", native)
        patch.setenv(portable.CHOICE, "torch")
        o, final = gla(*leaves[:4], initial_state=leaves[4], output_final_state=True, cu_seqlens=cu)
        assert final is not None
        source = torch.Generator("cuda").manual_seed(3)
        cotangents = [
            torch.randn(x.shape, generator=source, device="cuda").bfloat16().to(x.dtype)
            for x in (o, final)
        ]
        gradients = torch.autograd.grad([o, final], leaves, cotangents)
    found = {"o": o, "final": final, **dict(zip(NAMES, gradients, strict=True))}
    return {name: x.detach() for name, x in found.items()}


def judged(
    inputs: list[Tensor], bounds: list[int] | None, heads: tuple[int, ...]
) -> tuple[Outcome, list[str]]:
    """What the kernels found, and what of it is further from float64 than the bar."""
    got = outcome(inputs, bounds)
    with by_difference():
        want = outcome([x.double() for x in inputs], bounds, native=False)
        floor = outcome(inputs, bounds, native=False)
    return got, above_the_bar(got, want, floor, inputs[0].shape[1], heads)


@pytest.mark.gpu
@on_hopper
@pytest.mark.parametrize("gate", [0.0, 0.003, 0.1, 1.0, 5.0])
@pytest.mark.parametrize(
    ("batch", "length", "heads", "value_heads", "bounds"),
    [
        (32, 1, 4, 4, None),
        (8, 200, 4, 8, None),
        (8, 513, 4, 12, None),
        (1, 300, 48, 48, [0, 1, 1, 70, 300]),
        (1, 640, 48, 48, [0, 0, 63, 127, 640, 640]),
    ],
)
def test_outputs_and_gradients_are_as_near_float64_as_the_emulation(
    batch: int, length: int, heads: int, value_heads: int, bounds: list[int] | None, gate: float
) -> None:
    states = batch if bounds is None else len(bounds) - 1
    inputs = draw(batch, length, heads, value_heads, gate, states)
    _, failed = judged(inputs, bounds, (heads, value_heads))
    assert not failed, failed


@pytest.mark.gpu
@on_hopper
@pytest.mark.parametrize(("key", "value"), [(64, 64), (128, 256), (40, 100)])
def test_other_widths_are_as_near_float64_as_the_emulation(key: int, value: int) -> None:
    _, failed = judged(draw(8, 200, 4, 8, 0.1, 8, key, value), None, (4, 8))
    assert not failed, failed


@pytest.mark.gpu
@on_hopper
def test_sequences_stay_apart_and_a_hundred_repeats_give_the_same_bits() -> None:
    bounds = [0, 70, 200]
    inputs = draw(1, 200, 2, 4, 0.1, 2)
    whole = outcome(inputs, bounds)
    for _ in range(100):
        again = outcome(inputs, bounds)
        assert all(torch.equal(whole[name], again[name]) for name in whole)
    for spoilt in range(4):
        changed = [x.clone() for x in inputs]
        changed[spoilt][0, 70] = torch.nan
        found = outcome(changed, bounds)
        for name in ("o", "q", "k", "v", "g"):
            assert torch.equal(found[name][:, :70], whole[name][:, :70]), (spoilt, name)
        assert found["o"][:, 70:].isnan().any()


@pytest.mark.gpu
@on_hopper
def test_a_gate_of_minus_infinity_forgets_its_channel() -> None:
    inputs = draw(1, 130, 2, 2, 0.1, 1)
    inputs[3][0, 40] = -torch.inf
    found = outcome(inputs, None)
    assert all(bool(x.isfinite().all()) for x in found.values())
    alone = outcome([x[:, 40:] for x in inputs[:4]] + [torch.zeros_like(inputs[4])], None)
    for name in ("o", "q", "v"):
        error = (found[name][:, 40:].float() - alone[name].float()).norm() / alone[name].norm()
        assert float(error) < 2.0**-6, name


@pytest.mark.gpu
@on_hopper
def test_a_captured_graph_computes_what_the_calls_compute() -> None:
    leaves = [x.requires_grad_() for x in draw(1, 300, 2, 4, 0.1, 1)]
    cotangent = torch.randn(1, 300, 4, 128, device="cuda").bfloat16()

    def run() -> list[Tensor]:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(dispatch, "GATES_A_CHANNEL", True)
            o, _ = gla(*leaves[:4], initial_state=leaves[4])
        return [o, *torch.autograd.grad(o, leaves, cotangent)]

    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            run()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        captured = run()
    for seed in range(3):
        torch.manual_seed(seed)
        with torch.no_grad():
            for leaf in leaves:
                leaf.mul_(torch.rand((), device="cuda"))
        for _ in range(3):
            graph.replay()
        assert all(map(torch.equal, run(), captured)), seed
