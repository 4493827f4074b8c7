"""A mask of -inf is no error: what is left of a row keeps the envelope that it has without the mask."""

from __future__ import annotations

import numpy as np
import torch

from adjudge.oracle import Oracle
from adjudge.oracle.regimes import regime
from adjudge.program import Arguments

X = torch.randn(8, 16, generator=torch.Generator().manual_seed(0))
LATER = torch.triu(torch.ones(8, 8, dtype=torch.bool), diagonal=1)


def attention(x: torch.Tensor, masked: bool) -> torch.Tensor:
    scores = x @ x.T
    if masked:
        scores = scores.masked_fill(LATER, float("-inf"))
    return torch.softmax(scores, -1) @ x


def envelope(masked: bool) -> np.ndarray:
    oracle = Oracle(lambda: lambda x: attention(x, masked), Arguments(args=(X,)), generic=True)
    return oracle.envelope(regime("fp32"), 32)[0]


def test_masked_scores_leave_an_envelope() -> None:
    masked, whole = envelope(True), envelope(False)
    # The first row attends to itself alone, and is exact but for its last product.
    assert (masked > 0).all()
    ratio = masked[-1] / whole[-1]
    assert ((ratio > 0.3) & (ratio < 3)).all()
