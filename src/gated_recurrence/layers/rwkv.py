"""RWKV-7's time mixing (arXiv 2503.14456, section 4)."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor, nn

from gated_recurrence import rwkv7
from gated_recurrence.layers.gates import LowRank, sigmoid
from gated_recurrence.layers.mixer import Mixer
from gated_recurrence.layers.norms import HeadNorm, heads_apart, unit, wide
from gated_recurrence.layers.packing import Places, State, earlier, latest, places

# The strongest decay of a token is exp(-exp(-0.5)) = 0.545.
STRONGEST = math.exp(-0.5)


class RWKV7(Mixer):
    """RWKV-7: every input a mixture of a token and the one before it; a decay and an in-context rate a
    channel; the removal key apart from the replacement key; a bonus for the token itself.

    The mixture of values with the first layer's belongs to a model, not to a layer, and is left out.
    `heads` = `value_heads`: its keys, decays and rates are a value head's.
    """

    def __init__(self, *sizes: int, rank: int = 32, **more: Any) -> None:
        super().__init__(*sizes, **more)
        if self.heads != self.value_heads:
            raise ValueError("RWKV7 has as many value heads as heads")
        width, keys, values = self.width, self.heads * self.key, self.heads * self.value
        self.project = nn.Identity()  # r, k and v each have an input of their own
        self.receptance = nn.Linear(width, keys, bias=False)
        self.keys = nn.Linear(width, keys, bias=False)
        self.values = nn.Linear(width, values, bias=False)
        #: How much of the token before goes into r, w, k, v, a, g.
        self.shift = nn.Parameter(torch.rand(6, width))
        self.decay = LowRank(width, rank, keys, bias=True, between=nn.Tanh())
        self.rate = LowRank(width, rank, keys, bias=True)
        self.gate = LowRank(width, rank, values, between=nn.Sigmoid())
        self.removal = nn.Parameter(torch.ones(self.heads, self.key))
        self.replacement = nn.Parameter(torch.full((self.heads, self.key), 0.5))
        self.bonus = nn.Parameter(0.1 * torch.randn(self.heads, self.key))
        self.norm = HeadNorm(self.heads, self.value, centred=True, eps=1e-5 * self.value)

    def forward(
        self, x: Tensor, state: State | None = None, cu_seqlens: Tensor | None = None
    ) -> tuple[Tensor, State]:
        at = places(x, cu_seqlens)
        recent = x.new_zeros(at.sequences, 1, self.width) if state is None else state.recent
        assert recent is not None
        out, recurrent = self._mix(x, recent, at, state, cu_seqlens)
        tokens = x.new_zeros(at.sequences, dtype=torch.int64) if state is None else state.tokens
        y = self.output(out.flatten(-2).to(x.dtype))
        return y, State(recurrent, latest(x, recent, at), tokens + at.ends)

    def _mix(
        self, x: Tensor, recent: Tensor, at: Places, state: State | None, cu_seqlens: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        before = earlier(x, recent, at, 1)
        r, w, k, v, a, g = ((x + (before - x) * share).to(x.dtype) for share in self.shift)
        query = heads_apart(self.receptance(r), self.heads)
        key, value = (heads_apart(y, self.heads) for y in (self.keys(k), self.values(v)))
        decay = -STRONGEST * heads_apart(sigmoid(self.decay(w)), self.heads)
        rate = heads_apart(sigmoid(self.rate(a)), self.heads)
        removed = unit(wide(key) * self.removal)
        written = (wide(key) * (1 + (rate - 1) * self.replacement)).to(key.dtype)
        start = None if state is None else state.recurrent
        out, final = rwkv7(
            *(query, written, value, decay, -removed, rate * removed, 1.0, start), True, cu_seqlens
        )
        assert final is not None
        bonus = (wide(query) * self.bonus * written).sum(-1, keepdim=True) * value
        return (self.norm(out) + bonus) * wide(self.gate(g)).view_as(out), final
