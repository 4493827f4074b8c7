"""Norms over the channels of a head; all reductions in float32 at least."""

from __future__ import annotations

import torch
from torch import Tensor, nn


def wide(x: Tensor) -> Tensor:
    """x in float32, or in float64 where it is that."""
    return x.to(torch.promote_types(x.dtype, torch.float32))


def heads_apart(x: Tensor, heads: int) -> Tensor:
    """`[..., heads * C]` to `[..., heads, C]`."""
    return x.reshape(*x.shape[:-1], heads, x.shape[-1] // heads)


def unit(x: Tensor, eps: float = 1e-6) -> Tensor:
    """`x / sqrt(|x|² + eps)` over the last axis, in x's dtype: keys and queries of the delta rules."""
    w = wide(x)
    return (w * torch.rsqrt(w.square().sum(-1, keepdim=True) + eps)).to(x.dtype)


class HeadNorm(nn.Module):
    """Norm over the last axis of `[..., heads, channels]`, with a weight for each channel.

    Root mean square, or, `centred`, mean and variance with a bias: a group norm whose groups are heads.
    `shared` keeps one weight for all heads.
    """

    def __init__(
        self,
        heads: int,
        channels: int,
        *,
        centred: bool = False,
        shared: bool = False,
        eps: float = 1e-5,
    ) -> None:
        super().__init__()
        shape = (channels,) if shared else (heads, channels)
        self.eps, self.centred = eps, centred
        self.weight = nn.Parameter(torch.ones(shape))
        self.bias = nn.Parameter(torch.zeros(shape)) if centred else None

    def forward(self, x: Tensor) -> Tensor:
        """Returns float32 at least; what follows decides where to round."""
        x = wide(x)
        if self.centred:
            x = x - x.mean(-1, keepdim=True)
        x = x * torch.rsqrt(x.square().mean(-1, keepdim=True) + self.eps) * self.weight
        return x if self.bias is None else x + self.bias
