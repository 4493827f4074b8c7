"""Operations that torch documents as varying on a GPU are seen in a reference, backward included."""

from __future__ import annotations

import torch

from adjudge.judge.varying import Varying


def test_what_is_documented_to_vary_is_noted() -> None:
    x = torch.randn(4, 3, requires_grad=True)
    table = torch.randn(5, 3, requires_grad=True)
    at = torch.tensor([0, 0, 1])
    with Varying() as met:
        (x @ x.mT).softmax(-1).sum().backward()
    assert met.names == set()
    with Varying() as met:
        torch.zeros(4, 3).index_add_(0, at, torch.ones(3, 3))
    assert met.names == {"index_add"}
    with Varying() as met:
        looked_up = torch.nn.functional.embedding(at, table)
        assert met.names == set()
        looked_up.sum().backward()
    assert met.names == {"embedding_dense_backward"}
