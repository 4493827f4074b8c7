"""The layers: causal, packed as apart, continued as whole, and every parameter is trained."""

from __future__ import annotations

import itertools

import pytest
import torch
from torch import Tensor, nn

from gated_recurrence.layers import LAYERS, Mixer
from gated_recurrence.layers.convolution import ShortConvolution
from gated_recurrence.layers.packing import places
from gated_recurrence.layers.rotary import rotate

WIDTH = 12
# Sums of at most 2**8 terms of size one in float64, through some ten steps.
CLOSE = {"rtol": 2.0**-38, "atol": 2.0**-38}


def layer(member: str) -> Mixer:
    torch.manual_seed(3)
    grouped = {} if member == "rwkv7" else {"value_heads": 4}
    return LAYERS[member](WIDTH, 2, 6, 4, **grouped).double()


def draw(batch: int, length: int) -> Tensor:
    source = torch.Generator().manual_seed(length)
    return torch.randn(batch, length, WIDTH, generator=source, dtype=torch.float64)


@pytest.fixture(params=LAYERS)
def member(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def test_shapes_and_every_parameter_gets_a_gradient(member: str) -> None:
    mixer, x = layer(member), draw(2, 9).requires_grad_()
    out, state = mixer(x)
    assert out.shape == x.shape
    assert state.recurrent.shape == (2, mixer.value_heads, 6, 4)
    assert state.tokens.tolist() == [9, 9]
    (out * torch.randn_like(out)).sum().backward()
    assert x.grad is not None
    assert x.grad.abs().sum() > 0
    for name, parameter in mixer.named_parameters():
        assert parameter.grad is not None, name
        assert parameter.grad.abs().sum() > 0, name


def test_no_token_sees_a_later_one(member: str) -> None:
    mixer, x = layer(member), draw(1, 70)
    changed = x.clone()
    changed[:, 40:] += 1.0
    first, second = mixer(x)[0], mixer(changed)[0]
    assert torch.equal(first[:, :40], second[:, :40])
    # Every later output moves, the first of them too: a layer is not one that looks only back.
    assert bool((first[:, 40:] != second[:, 40:]).any(-1).all())


def test_packed_sequences_equal_separate_ones(member: str) -> None:
    mixer, x = layer(member), draw(1, 75)
    bounds = [0, 1, 1, 3, 70, 75]
    _, started = mixer(draw(5, 6))
    packed, after = mixer(x, started, torch.tensor(bounds))
    for index, (first, end) in enumerate(itertools.pairwise(bounds)):
        one = slice(index, index + 1)
        before = type(started)(
            started.recurrent[one],
            None if started.recent is None else started.recent[one],
            started.tokens[one],
        )
        alone, state = mixer(x[:, first:end], before)
        torch.testing.assert_close(alone, packed[:, first:end], **CLOSE)
        torch.testing.assert_close(state.recurrent, after.recurrent[one], **CLOSE)
        assert state.tokens.item() == after.tokens[index].item() == 6 + end - first
        if state.recent is not None:
            assert after.recent is not None
            torch.testing.assert_close(state.recent, after.recent[one], **CLOSE)


@pytest.mark.parametrize("cut", [1, 2, 33])
def test_two_halves_with_the_state_equal_the_whole(member: str, cut: int) -> None:
    mixer, x = layer(member), draw(2, 70)
    whole, final = mixer(x)
    first, state = mixer(x[:, :cut])
    second, last = mixer(x[:, cut:], state)
    torch.testing.assert_close(torch.cat([first, second], 1), whole, **CLOSE)
    torch.testing.assert_close(last.recurrent, final.recurrent, **CLOSE)
    without, _ = mixer(x[:, cut:])
    assert not torch.allclose(without, second)


def test_under_autocast_the_recurrence_gets_bfloat16(member: str) -> None:
    mixer, x = layer(member).float(), draw(1, 20).float()
    seen: list[torch.dtype] = []
    mixer.norm.register_forward_hook(lambda _, inputs, __: seen.append(inputs[0].dtype))  # type: ignore[union-attr]
    exact = mixer(x)[0]
    with torch.autocast("cpu", torch.bfloat16):
        out = mixer(x)[0]
    assert seen[0] == torch.float32
    # Mamba-2 gates in float32 before its norm.
    assert seen[1] == (torch.float32 if member == "simple_gla" else torch.bfloat16)
    # Ten roundings of 2**-9 each, in RMS, of what is summed; norms of a head may divide by less.
    assert float((out - exact).detach().norm() / exact.norm()) < 0.1


def test_the_convolution_is_torchs() -> None:
    torch.manual_seed(0)
    short = ShortConvolution(5, 4, bias=True).double()
    nn.init.normal_(short.bias)
    x = torch.randn(2, 11, 5, dtype=torch.float64)
    got, recent = short(x, short.start(x, 2), places(x, None))
    padded = nn.functional.pad(x.mT, (3, 0))
    want = nn.functional.conv1d(padded, short.weight.flip(-1).unsqueeze(1), short.bias, groups=5).mT
    torch.testing.assert_close(got, nn.functional.silu(want), **CLOSE)
    assert torch.equal(recent, x[:, -3:])


def test_rotations_depend_on_distance_alone() -> None:
    q, k = torch.randn(2, 1, 1, 1, 8, dtype=torch.float64)

    def score(i: int, j: int) -> float:
        left, right = (rotate(x, torch.tensor([[n]])) for x, n in ((q, i), (k, j)))
        return float((left * right).sum())

    assert score(5, 2) == pytest.approx(score(1005, 1002), rel=1e-9)
    assert score(5, 2) != pytest.approx(score(5, 3), rel=1e-3)
    assert float(rotate(q, torch.tensor([[9]])).norm()) == pytest.approx(float(q.norm()), rel=1e-12)


def test_heads_that_do_not_divide_are_refused() -> None:
    with pytest.raises(ValueError, match="value_heads"):
        LAYERS["gla"](WIDTH, 2, 6, 4, value_heads=3)
    with pytest.raises(ValueError, match="value heads"):
        LAYERS["rwkv7"](WIDTH, 2, 6, 4, value_heads=4)
    with pytest.raises(ValueError, match="even"):
        LAYERS["retention"](WIDTH, 2, 5, 4)
