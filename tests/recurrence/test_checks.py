"""Every wrong argument is refused by name."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from gated_recurrence import gated_delta_rule, retention


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
