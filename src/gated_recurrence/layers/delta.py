"""Layers with a delta rule: DeltaNet, Gated DeltaNet, KDA, GDN-2.

All convolve q, k and v over four tokens, and take q and k to unit length.
"""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn

from gated_recurrence import delta_rule, gated_delta_rule, gated_delta_rule_2, kda
from gated_recurrence.layers.gates import LowRank, SelectiveDecay, sigmoid
from gated_recurrence.layers.mixer import Mixer
from gated_recurrence.layers.norms import HeadNorm, heads_apart, unit, wide


class _Delta(Mixer):
    taps = 4

    def __init__(self, *sizes: int, **more: Any) -> None:
        super().__init__(*sizes, **more)
        self.norm = HeadNorm(self.value_heads, self.value, shared=True)


class DeltaNet(_Delta):
    """DeltaNet (arXiv 2406.06484): β a head, a norm of each head, no gate."""

    def __init__(self, *sizes: int, **more: Any) -> None:
        super().__init__(*sizes, **more)
        self.rate = nn.Linear(self.width, self.value_heads, bias=False)

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
        beta = sigmoid(self.rate(x))
        out, final = delta_rule(unit(q), unit(k), v, beta, None, start, True, cu_seqlens)
        assert final is not None
        return self.norm(out), final


class GatedDeltaNet(_Delta):
    """Gated DeltaNet (arXiv 2412.06464): β and Mamba-2's decay a head, a norm, a swish gate."""

    def __init__(self, *sizes: int, **more: Any) -> None:
        super().__init__(*sizes, **more)
        self.rate = nn.Linear(self.width, self.value_heads, bias=False)
        self.step = nn.Linear(self.width, self.value_heads, bias=False)
        self.decay = SelectiveDecay(self.value_heads)
        self.gate = nn.Linear(self.width, self.value_heads * self.value, bias=False)

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
        beta, g = sigmoid(self.rate(x)), self.decay(self.step(x))[0].squeeze(-1)
        out, final = gated_delta_rule(
            *(unit(q), unit(k), v, g, beta, None, start), True, cu_seqlens
        )
        assert final is not None
        gate = nn.functional.silu(wide(self.gate(x)))
        return self.norm(out) * gate.view_as(out), final


class _Channel(_Delta):
    """A decay a channel through as many channels as a head has, and a sigmoid gate through as many."""

    def __init__(self, *sizes: int, **more: Any) -> None:
        super().__init__(*sizes, **more)
        self.step = LowRank(self.width, self.value, self.value_heads * self.key)
        self.decay = SelectiveDecay(self.value_heads, self.key)
        self.gate = LowRank(self.width, self.value, self.value_heads * self.value, bias=True)

    def _gated(self, x: Tensor, out: Tensor) -> Tensor:
        normed: Tensor = self.norm(out)
        return normed * sigmoid(self.gate(x)).view_as(out)


class KDA(_Channel):
    """Kimi delta attention (arXiv 2510.26692)."""

    def __init__(self, *sizes: int, **more: Any) -> None:
        super().__init__(*sizes, **more)
        self.rate = nn.Linear(self.width, self.value_heads, bias=False)

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
        beta, g = sigmoid(self.rate(x)), self.decay(self.step(x))[0]
        out, final = kda(unit(q), unit(k), v, g, beta, None, start, True, cu_seqlens)
        assert final is not None
        return self._gated(x, out), final


class GDN2(_Channel):
    """Gated DeltaNet-2: KDA with a gate a channel for what is erased and one for what is written, both
    sigmoids of projections."""

    def __init__(self, *sizes: int, **more: Any) -> None:
        super().__init__(*sizes, **more)
        self.erase = nn.Linear(self.width, self.value_heads * self.key, bias=False)
        self.write = nn.Linear(self.width, self.value_heads * self.value, bias=False)

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
        g = self.decay(self.step(x))[0]
        b = heads_apart(sigmoid(self.erase(x)), self.value_heads)
        w = heads_apart(sigmoid(self.write(x)), self.value_heads)
        out, final = gated_delta_rule_2(
            *(unit(q), unit(k), v, g, b, w, None, start), True, cu_seqlens
        )
        assert final is not None
        return self._gated(x, out), final
