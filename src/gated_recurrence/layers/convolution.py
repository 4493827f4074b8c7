"""The short causal convolution before a recurrence: each channel on its own, few taps."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from gated_recurrence.layers.packing import Places, earlier, latest


class ShortConvolution(nn.Module):
    """`y_t = silu(Σ_j weight[:, j] x_{t-j} + bias)` inside a sequence (Mamba, arXiv 2312.00752).

    Sums in float32 at least; returns x's dtype.
    """

    def __init__(self, channels: int, taps: int = 4, bias: bool = False) -> None:
        super().__init__()
        if taps < 1:
            raise ValueError(f"taps must be at least 1, got {taps}")
        self.channels, self.taps = channels, taps
        self.weight = nn.Parameter(torch.empty(channels, taps))
        self.bias = nn.Parameter(torch.zeros(channels)) if bias else None
        nn.init.uniform_(self.weight, -(taps**-0.5), taps**-0.5)

    def start(self, x: Tensor, sequences: int) -> Tensor:
        """The inputs before the first: zeros `[N, taps - 1, channels]`."""
        return x.new_zeros(sequences, self.taps - 1, self.channels)

    def forward(self, x: Tensor, recent: Tensor, at: Places) -> tuple[Tensor, Tensor]:
        """x `[B, T, channels]` and `recent` `[N, taps - 1, channels]` to y and the next `recent`."""
        total: Tensor | None = self.bias
        for back in range(self.taps):
            term = earlier(x, recent, at, back) * self.weight[:, back]
            total = term if total is None else total + term
        assert total is not None
        return nn.functional.silu(total).to(x.dtype), latest(x, recent, at)
