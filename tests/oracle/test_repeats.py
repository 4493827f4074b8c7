from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from adjudge.oracle import Oracle, evaluate, repeats
from adjudge.oracle.regimes import regime
from adjudge.program import Arguments


class Plain(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv = torch.nn.Conv2d(3, 4, 3)
        self.linear = torch.nn.Linear(4, 5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = torch.relu_(self.conv(x))
        return self.linear(y.mean((2, 3)))


class Overwriting(torch.nn.Module):
    """Writes to the operand of its product before it multiplies it again."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        once = x @ x
        x.mul_(2)
        return once + x @ x


def oracle_of(model: type[torch.nn.Module], shape: tuple[int, ...]) -> Oracle:
    torch.manual_seed(0)
    reference, x = model(), torch.randn(shape)
    return Oracle(lambda: reference, Arguments(args=(x,)), generic=True, seed=3)


def drawn(model: type[torch.nn.Module], shape: tuple[int, ...]) -> list[Any]:
    oracle = oracle_of(model, shape)
    found = regime("tf32")
    return [*oracle.envelope(found, 5), *oracle.worst(found)]


@pytest.mark.parametrize(("model", "shape"), [(Plain, (2, 3, 8, 8)), (Overwriting, (6, 6))])
def test_runs_that_share_contractions_err_as_runs_that_do_not(
    model: type[torch.nn.Module], shape: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    shared = drawn(model, shape)
    monkeypatch.setattr(evaluate, "repeats", lambda owner: None)
    alone = drawn(model, shape)
    for one, other in zip(shared, alone, strict=True):
        np.testing.assert_array_equal(one, other)


def test_a_contraction_of_the_inputs_is_made_once(monkeypatch: pytest.MonkeyPatch) -> None:
    made = []
    part = repeats.Repeats.part

    def counted(self: Any, held: Any, name: str, make: Any) -> torch.Tensor:
        def noted() -> Any:
            made.append((held.what[0], name))
            return make()

        return part(self, held, name, noted)

    monkeypatch.setattr(repeats.Repeats, "part", counted)
    oracle = oracle_of(Plain, (2, 3, 8, 8))
    for name in ("fp32", "tf32"):
        oracle.envelope(regime(name), 6)
    convolutions = [name for what, name in made if what is torch.ops.aten.convolution.default]
    assert sorted(convolutions) == ["magnitude", "squares", "y"]


def test_operands_written_in_place_are_not_taken_for_what_they_were() -> None:
    owner = oracle_of(Plain, (1, 3, 4, 4))
    kept = repeats.Repeats(owner)
    x = torch.ones(3)
    held = kept.at(0, "product", (x,))
    assert held is not None
    kept.part(held, "y", lambda: torch.tensor(1.0))
    x.mul_(2)
    assert kept.at(0, "product", (torch.full((3,), 2.0),)) is None


def test_more_than_the_limit_is_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(repeats, "MOST", 10)
    kept = repeats.Repeats(oracle_of(Plain, (1, 3, 4, 4)))
    assert kept.at(0, "product", (torch.ones(11),)) is None
    held = kept.at(1, "product", (torch.ones(6),))
    assert held is not None
    kept.part(held, "y", lambda: torch.ones(5))
    assert not held.parts
