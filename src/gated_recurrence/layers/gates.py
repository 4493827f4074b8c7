"""Projections that make decays and gates; everything that enters an exponent is float32 at least."""

from __future__ import annotations

import math
from typing import cast

import torch
from torch import Tensor, nn

from gated_recurrence.layers.norms import heads_apart, wide


class LowRank(nn.Module):
    """`x A B + bias` through `rank` channels, with an optional tanh or sigmoid between the two."""

    def __init__(
        self,
        width: int,
        rank: int,
        out: int,
        *,
        bias: bool = False,
        between: nn.Module | None = None,
    ) -> None:
        super().__init__()
        self.down = nn.Linear(width, rank, bias=False)
        self.between = between or nn.Identity()
        self.up = nn.Linear(rank, out, bias=bias)

    def forward(self, x: Tensor) -> Tensor:
        return cast(Tensor, self.up(self.between(self.down(x))))


class SelectiveDecay(nn.Module):
    """`g = -exp(log_rate) softplus(x + bias)`, Mamba-2's decay (arXiv 2405.21060, section 7).

    `heads` rates, drawn evenly from 1 to 16; `channels` biases a head, so that the step at the start,
    softplus(bias), is drawn from 0.001 to 0.1, evenly in its logarithm.
    """

    def __init__(self, heads: int, channels: int = 1) -> None:
        super().__init__()
        self.heads = heads
        self.log_rate = nn.Parameter(torch.empty(heads, 1).uniform_(1.0, 16.0).log())
        step = torch.empty(heads, channels).uniform_(math.log(1e-3), math.log(1e-1)).exp()
        self.bias = nn.Parameter(step + torch.log(-torch.expm1(-step)))  # softplus's inverse

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """x `[B, T, heads * channels]` to g and the step, `[B, T, heads, channels]` each."""
        step = nn.functional.softplus(heads_apart(wide(x), self.heads) + self.bias)
        return -self.log_rate.exp() * step, step


def log_sigmoid_decay(x: Tensor, temperature: float = 16.0) -> Tensor:
    """`log(sigmoid(x)) / temperature`, GLA's gate (arXiv 2312.06635)."""
    return nn.functional.logsigmoid(wide(x)) / temperature


def sigmoid(x: Tensor) -> Tensor:
    """A rate from zero to one, float32 at least: β and the channel gates."""
    return wide(x).sigmoid()
