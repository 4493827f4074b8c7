"""Every wrong argument is refused by name."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

import gated_recurrence
from gated_recurrence import gated_delta_rule, retention
from gated_recurrence.native import dispatch
from gated_recurrence.native import gated_delta_rule as native


def arguments() -> dict[str, Tensor]:
    return {
        "q": torch.ones(1, 5, 2, 4),
        "k": torch.ones(1, 5, 2, 4),
        "v": torch.ones(1, 5, 4, 3),
        "g": -torch.ones(1, 5, 4),
        "beta": torch.ones(1, 5, 4),
    }


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("k", torch.ones(1, 5, 2, 5)),
        ("v", torch.ones(1, 5, 3, 3)),
        ("v", torch.ones(1, 5, 4)),
        ("q", torch.ones(5, 2, 4)),
        ("k", torch.ones(1, 5, 2, 4, dtype=torch.float64)),
        ("q", torch.ones(1, 5, 2, 4, dtype=torch.int32)),
        ("g", torch.ones(1, 5, 4)),
        ("g", -torch.ones(1, 5, 4, 4)),
        ("beta", torch.full((1, 5, 4), torch.nan)),
        ("g", torch.full((1, 5, 4), -torch.inf)),
        ("k", torch.ones(1, 5, 2, 4, device="meta")),
        ("initial_state", torch.zeros(2, 4, 4, 3)),
        ("cu_seqlens", torch.tensor([0, 4])),
        ("cu_seqlens", torch.tensor([1, 5])),
        ("cu_seqlens", torch.tensor([0, 4, 2, 5])),
        ("cu_seqlens", torch.tensor([0.0, 5.0])),
        ("cu_seqlens", torch.tensor([5])),
    ],
)
def test_refused_by_name(name: str, value: Tensor) -> None:
    with pytest.raises((TypeError, ValueError), match=rf"\b{name}\b"):
        gated_delta_rule(**{**arguments(), name: value})


#: Letters of the shapes of what each member takes, as in `check`: G value heads, H heads.
TAKEN: dict[str, dict[str, str]] = {
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


def good(member: str) -> dict[str, Tensor]:
    sizes = {"B": 1, "T": 5, "H": 2, "G": 4, "K": 4, "V": 3, "N": 1}
    letters = {"q": "BTHK", "k": "BTHK", "v": "BTGV", **TAKEN[member], "initial_state": "NGKV"}
    found = {name: torch.full([sizes[x] for x in axes], 0.5) for name, axes in letters.items()}
    return {name: -x if name in ("g", "log_decay") else x for name, x in found.items()}


def spoilt(x: Tensor, value: float) -> Tensor:
    x = x.clone()
    x.view(-1)[-1] = value
    return x


#: What is wrong with one argument, whichever it is.
WRONG: dict[str, Callable[[Tensor], object]] = {
    "one axis less": lambda x: x[0],
    "one axis more": lambda x: x[None],
    "one entry more in the first axis": lambda x: torch.cat([x, x[:1]]),
    "one channel or head more": lambda x: torch.cat([x, x[..., :1]], -1),
    "integers": lambda x: x.int(),
    "complex numbers": lambda x: x.to(torch.complex64),
    "booleans": lambda x: x > 0,
    "another device": lambda x: x.to("meta"),
    "a list": lambda x: x.tolist(),
    "nothing": lambda _: None,
    "one NaN": lambda x: spoilt(x, torch.nan),
    "one infinity": lambda x: spoilt(x, torch.inf),
    "minus infinity": lambda x: spoilt(x, -torch.inf),
}
#: What of that is in the values, which native kernels do not read before they start.
VALUES = ("one NaN", "one infinity", "minus infinity")
NATIVE = ("linear_attention", "retention", "simple_gla", "delta_rule", "gated_delta_rule")


@pytest.mark.parametrize("wrong", WRONG)
@pytest.mark.parametrize("member", TAKEN)
def test_every_member_refuses_every_wrong_argument_by_name(member: str, wrong: str) -> None:
    operation = getattr(gated_recurrence, member)
    for name, right in good(member).items():
        optional = name in ("initial_state", "log_decay")
        if wrong == "nothing" and optional:
            continue
        # q and v say what the others must be: what is wrong with theirs is said of those.
        said = {"q": r"\b[qkv]\b", "v": r"\b(v|w|initial_state)\b"}.get(name, rf"\b{name}\b")
        with pytest.raises((TypeError, ValueError), match=said):
            operation(**{**good(member), name: WRONG[wrong](right)})


@pytest.mark.parametrize("member", TAKEN)
def test_every_member_refuses_growth_heads_and_channels_that_do_not_fit(member: str) -> None:
    operation, right = getattr(gated_recurrence, member), good(member)
    for name in ("g", "log_decay"):
        if name in right:
            with pytest.raises(ValueError, match=rf"\b{name}\b.*above zero"):
                operation(**{**right, name: spoilt(right[name], 2.0**-20)})
    with pytest.raises(ValueError, match="v has 3 heads, not a multiple of q's 2"):
        operation(**{**right, "v": right["v"][:, :, :3], **_heads(right, member, 3)})
    with pytest.raises(ValueError, match="at least one head"):
        operation(**{**right, "q": right["q"][:, :, :0], "k": right["k"][:, :, :0]})
    with pytest.raises(ValueError, match="at least one head"):
        operation(**{**right, "v": right["v"][..., :0]})
    for dtype in (torch.float64, torch.bfloat16):
        for name in ("k", "v"):
            with pytest.raises(TypeError, match=rf"{name} has dtype"):
                operation(**{**right, name: right[name].to(dtype)})


def _heads(right: dict[str, Tensor], member: str, count: int) -> dict[str, Tensor]:
    """A member's own arguments with fewer value heads."""
    return {
        name: right[name].narrow(letters.index("G"), 0, count)
        for name, letters in TAKEN[member].items()
    }


@pytest.mark.parametrize("wrong", WRONG)
@pytest.mark.parametrize("member", NATIVE)
def test_native_kernels_see_nothing_that_is_wrong_but_values(
    member: str, wrong: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    called: list[str] = []

    def kernel(q: Tensor, k: Tensor, v: Tensor, *_: object, **__: object) -> tuple[Tensor, Tensor]:
        called.append(wrong)
        return v, v

    monkeypatch.setattr(dispatch, "native", lambda *_, **__: True)
    monkeypatch.setattr(native, "gated_delta_rule", kernel)
    operation = getattr(gated_recurrence, member)
    for name, right in good(member).items():
        if wrong == "nothing" and name in ("initial_state", "log_decay"):
            continue
        given = {**good(member), name: WRONG[wrong](right)}
        if wrong in VALUES and (name, wrong) != ("log_decay", "one infinity"):
            operation(**given)
            assert called.pop() == wrong  # NaN comes out as NaN: test_native.py, on a GPU
        else:
            with pytest.raises((TypeError, ValueError)):
                operation(**given)
            assert not called


@pytest.mark.parametrize(
    "bounds",
    [
        *([0, 4], [1, 5], [0, 6], [0, 4, 2, 5], [-1, 5], [5], [[0, 5]]),
        *([0.0, 5.0], [0, 5.0], [False, True]),
    ],
    ids=str,
)
@pytest.mark.parametrize("member", TAKEN)
def test_every_member_refuses_bounds_that_do_not_fit(member: str, bounds: list[int]) -> None:
    with pytest.raises((TypeError, ValueError), match="cu_seqlens"):
        getattr(gated_recurrence, member)(**good(member), cu_seqlens=torch.tensor(bounds))


@pytest.mark.parametrize("member", TAKEN)
def test_every_member_refuses_bounds_that_are_no_tensor_here(member: str) -> None:
    for bounds in ([0, 5], torch.tensor([0, 5], device="meta")):
        with pytest.raises((TypeError, ValueError), match="cu_seqlens"):
            getattr(gated_recurrence, member)(**good(member), cu_seqlens=bounds)


@pytest.mark.parametrize("member", TAKEN)
def test_a_state_is_asked_of_every_sequence(member: str) -> None:
    with pytest.raises(ValueError, match="initial_state has shape"):
        getattr(gated_recurrence, member)(**good(member), cu_seqlens=torch.tensor([0, 2, 5]))


def test_packing_needs_one_row() -> None:
    doubled = {n: torch.cat([x, x]) for n, x in arguments().items()}
    with pytest.raises(ValueError, match="cu_seqlens"):
        gated_delta_rule(**doubled, cu_seqlens=torch.tensor([0, 5]))


def test_retention_refuses_growth() -> None:
    a = arguments()
    with pytest.raises(ValueError, match="log_decay"):
        retention(a["q"], a["k"], a["v"], torch.full((4,), 0.1))


def test_bounds_changed_in_place_are_read_again() -> None:
    a, bounds = arguments(), torch.tensor([0, 2, 5])
    first = gated_delta_rule(**a, cu_seqlens=bounds)[0]
    bounds[1] = 3
    again = gated_delta_rule(**a, cu_seqlens=bounds)[0]
    assert not torch.equal(first, again)
    assert torch.equal(again, gated_delta_rule(**a, cu_seqlens=torch.tensor([0, 3, 5]))[0])
