"""Every member against float64 autograd of its own naive recurrence."""

from __future__ import annotations

import importlib
import itertools
import math
from collections.abc import Callable, Iterator

import pytest
import torch
from torch import Tensor

import gated_recurrence

EXTRAS: dict[str, dict[str, str]] = {
    "linear_attention": {},
    "retention": {"log_decay": "G"},
    "simple_gla": {"g": "BTG"},
    "gla": {"g": "BTGK"},
    "delta_rule": {"beta": "BTG"},
    "gated_delta_rule": {"g": "BTG", "beta": "BTG"},
    "kda": {"g": "BTGK", "beta": "BTG"},
    "gated_delta_rule_2": {"g": "BTGK", "b": "BTGK", "w": "BTGV"},
    "rwkv7": {"g": "BTGK", "a": "BTGK", "b": "BTGK"},
}
MEMBERS = tuple(EXTRAS)
GATED = tuple(name for name in MEMBERS if "g" in EXTRAS[name])


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def draw(
    member: str, length: int, *, batch: int = 2, gate: float = 0.2, dtype: torch.dtype
) -> dict[str, Tensor]:
    source = torch.Generator().manual_seed(length + 1)
    sizes = {"B": batch, "T": length, "H": 2, "G": 4, "K": 8, "V": 6}

    def normal(letters: str) -> Tensor:
        shape = [sizes[letter] for letter in letters]
        return torch.randn(shape, generator=source, dtype=torch.float64)

    unit = torch.nn.functional.normalize
    out = {"q": normal("BTHK"), "k": unit(normal("BTHK"), dim=-1), "v": normal("BTGV")}
    for name, letters in EXTRAS[member].items():
        out[name] = normal(letters).sigmoid()
        if name in ("g", "log_decay"):
            out[name] = -gate * normal(letters).abs()
    if member == "rwkv7":
        direction = unit(normal("BTGK"), dim=-1)
        out["b"] = direction * out["a"]
        out["a"] = -direction
    out = {n: x.to(dtype if n in ("q", "k", "v") else _wide(dtype)) for n, x in out.items()}
    sequences = normal("BGK").unsqueeze(-1) * normal("BGV").unsqueeze(-2)
    out["initial_state"] = sequences.to(_wide(dtype))
    return {n: x.requires_grad_() for n, x in out.items()}


def _wide(dtype: torch.dtype) -> torch.dtype:
    return torch.float64 if dtype == torch.float64 else torch.float32


def naive(member: str, inputs: dict[str, Tensor]) -> tuple[Tensor, Tensor]:
    module = importlib.import_module(f"gated_recurrence.{member}.naive")
    found: tuple[Tensor, Tensor] = getattr(module, member)(**inputs)
    return found


def public(member: str, inputs: dict[str, Tensor], **more: Tensor) -> tuple[Tensor, Tensor]:
    found: tuple[Tensor, Tensor] = getattr(gated_recurrence, member)(
        **inputs, output_final_state=True, **more
    )
    return found


def gradients(outputs: tuple[Tensor, Tensor], inputs: dict[str, Tensor]) -> list[Tensor]:
    source = torch.Generator().manual_seed(7)
    total = sum(
        (
            x.double() * torch.randn(x.shape, generator=source, dtype=torch.float64).to(x.device)
        ).sum()
        for x in outputs
    )
    assert isinstance(total, Tensor)
    return list(torch.autograd.grad(total, list(inputs.values()), allow_unused=True))


def relative(got: Tensor | None, want: Tensor | None) -> float:
    if want is None or got is None:
        assert want is None or not want.any()
        assert got is None or not got.any()
        return 0.0
    assert got.shape == want.shape
    norm = float(want.double().norm())
    return float((got.double() - want.double()).norm()) / norm if norm else float(got.abs().sum())


def float32_steps(length: int) -> float:
    """Relative loss of float32 in a tensor core, which truncates: 8 steps of 16 over the channels,
    and 4 and a decay a chunk."""
    return (8 + 5 * -(-length // 64)) * 2.0**-23


def errors(member: str, got_in: dict[str, Tensor], want_in: dict[str, Tensor]) -> dict[str, float]:
    got, want = public(member, got_in), naive(member, want_in)
    out = {"o": relative(got[0], want[0]), "final": relative(got[1], want[1])}
    pairs = zip(got_in, gradients(got, got_in), gradients(want, want_in), strict=True)
    return out | {name: relative(x, y) for name, x, y in pairs}


# A sum of at most T·K < 2**11 rounded float64 terms: 2**11 · 2**-53 = 2.3e-13, and a factor of 4
# for the triangular solve and the norm of the gradient's cancelling gate terms.
EXACT = 1e-12


@pytest.mark.parametrize("length", [0, 1, 17, 64, 65, 131])
@pytest.mark.parametrize("member", MEMBERS)
def test_float64_matches_the_naive_recurrence_and_its_gradients(member: str, length: int) -> None:
    inputs = draw(member, length, dtype=torch.float64)
    found = errors(member, inputs, inputs)
    assert max(found.values()) <= EXACT, found


@pytest.mark.parametrize("gate", [0.0, 5.0, 60.0])
@pytest.mark.parametrize("member", GATED)
def test_zero_and_strong_gates(member: str, gate: float) -> None:
    inputs = draw(member, 70, gate=gate, dtype=torch.float64)
    found = errors(member, inputs, inputs)
    # exp magnifies the rounding of its argument: |G| ≤ 60 · 4 · 64 < 2**14 times 2**-53.
    assert max(found.values()) <= 2.0**-39, found


@pytest.mark.parametrize("member", GATED)
def test_neither_weak_gates_nor_the_gradients_of_strong_ones_are_lost_in_float32(
    member: str,
) -> None:
    inputs = draw(member, 70, dtype=torch.float32)
    with torch.no_grad():
        inputs["g"].fill_(-0.1)
        inputs["g"][:, ::2] = -20.0
    lifted = {n: x.detach().double().requires_grad_() for n, x in inputs.items()}
    found = errors(member, inputs, lifted)
    # Some 64 roundings lie between an input and a gradient, at the worst all one way; a decay between
    # two weak gates, as a difference of sums near 700 (2**-15 each), would be off by 2**-15.
    assert max(found.values()) <= 64 * 2.0**-24, found
    got = gradients(public(member, inputs), inputs)[list(inputs).index("g")][:, ::2]
    want = gradients(naive(member, lifted), lifted)[list(inputs).index("g")][:, ::2]
    # Nine digits below its neighbours', so that float32 sums of theirs would leave nothing of it.
    assert float((got - want).norm()) <= 64 * 2.0**-24 * float(want.norm())


@pytest.mark.parametrize("member", MEMBERS)
def test_float16_is_stored_and_not_rounded_to_bfloat16(member: str) -> None:
    inputs = draw(member, 70, dtype=torch.float16)
    lifted = {n: x.detach().double().requires_grad_() for n, x in inputs.items()}
    # One rounding of the output to float16 (2**-11), and float32 before it.
    assert errors(member, inputs, lifted)["o"] <= 2.0**-11


@pytest.mark.parametrize("member", MEMBERS)
def test_bfloat16_operands_stay_near_the_rounded_inputs_answer(member: str) -> None:
    inputs = draw(member, 131, dtype=torch.bfloat16)
    lifted = {n: x.detach().double().requires_grad_() for n, x in inputs.items()}
    found = errors(member, inputs, lifted)
    assert found["o"] > 0
    # Up to eight bfloat16 roundings (2**-9 each) lie between an input and a gradient, in RMS.
    assert max(found.values()) <= 8 * 2.0**-9, found


@pytest.mark.parametrize("member", MEMBERS)
def test_packed_sequences_equal_separate_calls(member: str) -> None:
    inputs = {n: x.detach() for n, x in draw(member, 100, batch=1, dtype=torch.float64).items()}
    bounds = [0, 1, 1, 70, 100]
    states = (
        inputs["initial_state"] * torch.arange(1.0, 5.0, dtype=torch.float64)[:, None, None, None]
    )
    cu = torch.tensor(bounds)
    packed, finals = public(member, {**inputs, "initial_state": states}, cu_seqlens=cu)
    for index, (first, end) in enumerate(itertools.pairwise(bounds)):
        one = {n: x if n == "log_decay" else x[:, first:end] for n, x in inputs.items()}
        one["initial_state"] = states[index : index + 1]
        alone, final = public(member, one)
        assert torch.equal(alone, packed[:, first:end])
        assert torch.equal(final, finals[index : index + 1])


@pytest.mark.parametrize("member", MEMBERS)
def test_strided_views_give_the_same_bits(member: str) -> None:
    inputs = {n: x.detach() for n, x in draw(member, 33, dtype=torch.float64).items()}
    views = {n: torch.stack([x, x], -1)[..., 0] for n, x in inputs.items()}
    assert all(
        torch.equal(x, y)
        for x, y in zip(public(member, inputs), public(member, views), strict=True)
    )


@pytest.mark.parametrize("member", MEMBERS)
def test_autocast_changes_nothing(member: str) -> None:
    inputs = draw(member, 70, dtype=torch.bfloat16)
    want = public(member, inputs)
    expected = gradients(want, inputs)
    with torch.autocast("cpu", torch.bfloat16):
        got = public(member, inputs)
        found = gradients(got, inputs)
    assert all(torch.equal(x, y) for x, y in zip((*got, *found), (*want, *expected), strict=True))


@pytest.mark.parametrize("seed", range(3))
def test_a_token_that_erases_a_write_erases_its_rounding_too(seed: int) -> None:
    """What two tokens have nearly erased, a third has moved between: the gradient of a fourth, which
    reads the rest, was off by hundreds of times itself."""
    near = 1 - 3e-6
    erase = torch.tensor([[near, 0.0], [0.97, 0.245], [0.0, near], [0.4, 0.9]])[None, :, None]
    none = torch.zeros_like(erase)
    state = torch.tensor([-0.681 * (1 + 0.03 * seed), 0.0]).reshape(1, 1, 2, 1)
    inputs = {"q": none, "k": none, "v": none[..., :1], "g": none - math.log(2)}
    inputs |= {"a": erase, "b": -0.5 * erase, "initial_state": state}

    def gradient(run: Callable[..., tuple[Tensor, Tensor]], dtype: torch.dtype) -> Tensor:
        leaves = {name: x.to(dtype).requires_grad_() for name, x in inputs.items()}
        out, final = run("rwkv7", leaves)
        (found,) = torch.autograd.grad(out.sum() + final.sum(), leaves["a"])
        return found[0, 3]

    torch.testing.assert_close(
        gradient(public, torch.float32).double(),
        gradient(naive, torch.float64),
        # 2**-24 of what is 6e-6 of its terms, some ten times.
        rtol=0.1,
        atol=0.0,
    )


def test_a_write_that_overflows_does_not_meet_the_rates_of_its_token() -> None:
    inputs = draw("rwkv7", 5, dtype=torch.float32)
    with torch.no_grad():
        inputs["k"][:, 3] *= 1e37
    out, final = public("rwkv7", inputs)
    cotangents = [torch.ones_like(out) * 100, torch.ones_like(final) * 100]
    found = torch.autograd.grad((out, final), list(inputs.values()), cotangents)
    got = dict(zip(inputs, found, strict=True))
    # Infinite, or NaN where a processor's product adds two that are.
    assert not got["v"].isfinite().all()
    for name in ("a", "b"):
        # A later token's reads are of the state that overflowed.
        assert not got[name][:, :4].isnan().any(), name
