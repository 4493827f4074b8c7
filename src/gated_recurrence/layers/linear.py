"""Layers without a delta rule: linear attention, RetNet, Mamba-2's SSD (simple GLA), GLA."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from gated_recurrence import gla, linear_attention, retention, simple_gla
from gated_recurrence.layers.gates import LowRank, SelectiveDecay, log_sigmoid_decay
from gated_recurrence.layers.mixer import Mixer
from gated_recurrence.layers.norms import HeadNorm, heads_apart, wide
from gated_recurrence.layers.rotary import rotate


class LinearAttention(Mixer):
    """Linear attention with `elu + 1` features (arXiv 2006.16236).

    A norm of each head in place of the division by `qᵀ Σ k` (arXiv 2210.10340): the division is by
    numbers without a lower bound.
    """

    def __init__(self, *sizes: int, **more: Any) -> None:
        super().__init__(*sizes, **more)
        self.norm = HeadNorm(self.value_heads, self.value)

    def mix(
        self,
        x: Tensor,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        position: Tensor,
        start: Tensor | None,
        cu_seqlens: Tensor | None,
    ) -> tuple[Tensor, Tensor]:
        q, k = ((nn.functional.elu(wide(y)) + 1).to(y.dtype) for y in (q, k))
        out, final = linear_attention(q, k, v, None, start, True, cu_seqlens)
        assert final is not None
        return self.norm(out), final


class Retention(Mixer):
    """RetNet's multi-scale retention (arXiv 2307.08621): rotated q and k, a constant decay a head, a
    group norm, a swish gate."""

    def __init__(self, *sizes: int, **more: Any) -> None:
        super().__init__(*sizes, **more)
        if self.key % 2:
            raise ValueError(f"key must be even to be rotated in pairs, got {self.key}")
        self.gate = nn.Linear(self.width, self.value_heads * self.value, bias=False)
        self.norm = HeadNorm(self.value_heads, self.value, centred=True)

    def mix(
        self,
        x: Tensor,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        position: Tensor,
        start: Tensor | None,
        cu_seqlens: Tensor | None,
    ) -> tuple[Tensor, Tensor]:
        q, k = rotate(q, position), rotate(k, position)
        out, final = retention(q, k, v, None, None, start, True, cu_seqlens)
        assert final is not None
        gate = nn.functional.silu(wide(self.gate(x)))
        return self.norm(out) * gate.view_as(out), final


class SimpleGLA(Mixer):
    """Mamba-2's state-space layer (arXiv 2405.21060, section 7): C is q, B is k, the step times x is v;
    a short convolution over all three; a skip `D x`; the output is gated, then normalised as a whole."""

    taps = 4
    convolution_bias = True

    def __init__(self, *sizes: int, **more: Any) -> None:
        super().__init__(*sizes, **more)
        self.step = nn.Linear(self.width, self.value_heads, bias=False)
        self.decay = SelectiveDecay(self.value_heads)
        self.skip = nn.Parameter(torch.ones(self.value_heads, 1))
        self.gate = nn.Linear(self.width, self.value_heads * self.value, bias=False)
        self.norm = HeadNorm(1, self.value_heads * self.value)

    def mix(
        self,
        x: Tensor,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        position: Tensor,
        start: Tensor | None,
        cu_seqlens: Tensor | None,
    ) -> tuple[Tensor, Tensor]:
        g, step = self.decay(self.step(x))
        written = (step * v).to(v.dtype)
        out, final = simple_gla(q, k, written, g.squeeze(-1), 1.0, start, True, cu_seqlens)
        assert final is not None
        gated = (wide(out) + self.skip * v).flatten(-2) * nn.functional.silu(wide(self.gate(x)))
        return self.norm(gated.unsqueeze(-2)).view_as(out), final


class GLA(Mixer):
    """Gated linear attention (arXiv 2312.06635): a decay a channel through 16 channels, a norm of each
    head, a swish gate."""

    def __init__(self, *sizes: int, rank: int = 16, **more: Any) -> None:
        super().__init__(*sizes, **more)
        self.decay = LowRank(self.width, rank, self.value_heads * self.key, bias=True)
        self.gate = nn.Linear(self.width, self.value_heads * self.value)
        self.norm = HeadNorm(self.value_heads, self.value, centred=True)

    def mix(
        self,
        x: Tensor,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        position: Tensor,
        start: Tensor | None,
        cu_seqlens: Tensor | None,
    ) -> tuple[Tensor, Tensor]:
        g = heads_apart(log_sigmoid_decay(self.decay(x)), self.value_heads)
        out, final = gla(q, k, v, g, None, start, True, cu_seqlens)
        assert final is not None
        gate = nn.functional.silu(wide(self.gate(x)))
        return self.norm(out) * gate.view_as(out), final
