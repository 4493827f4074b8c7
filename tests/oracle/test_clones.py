"""Copies of modules: equal, apart, and with what is shared in the original shared in the copy."""

from __future__ import annotations

import pytest
import torch

from adjudge.oracle.clones import clone


class _Tied(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.one = torch.nn.Conv2d(2, 3, 1)
        self.other = torch.nn.BatchNorm2d(3)
        self.again = self.one
        self.kept = [1, self.one.weight]
        self.table = torch.arange(3.0)


@pytest.mark.parametrize(
    "module", [_Tied(), torch.nn.LSTM(2, 3), torch.nn.MultiheadAttention(4, 2)]
)
def test_a_copy_holds_the_same_state_and_shares_none(module: torch.nn.Module) -> None:
    copied = clone(module)
    before = {name: t.clone() for name, t in module.state_dict().items()}
    assert type(copied) is type(module)
    assert vars(copied).keys() == vars(module).keys()
    state = copied.state_dict()
    assert all(torch.equal(t, before[name]) for name, t in state.items())
    for tensor in state.values():
        tensor.add_(1)
    assert all(torch.equal(t, before[name]) for name, t in module.state_dict().items())


def test_what_the_original_shares_the_copy_shares() -> None:
    copied = clone(_Tied())
    assert isinstance(copied, _Tied)
    assert copied.again is copied.one
    assert copied.kept[1] is copied.one.weight
