"""Rotations of queries and keys by their position, as RetNet has them (arXiv 2307.08621)."""

from __future__ import annotations

import torch
from torch import Tensor


def rotate(x: Tensor, position: Tensor, base: float = 10000.0) -> Tensor:
    """Turn channels 2j and 2j+1 of x `[B, T, H, K]` by `position * base ** (-2j / K)`; K even.

    `position` `[B, T]`. Angles in float64: at 100000 tokens float32 is off by 0.004.
    """
    half = x.shape[-1] // 2
    rate = base ** (-torch.arange(half, device=x.device, dtype=torch.float64) / half)
    angle = (position[..., None, None] * rate).to(torch.float64)
    work = torch.promote_types(x.dtype, torch.float32)
    cos, sin = angle.cos().to(work), angle.sin().to(work)
    even, odd = x[..., 0::2].to(work), x[..., 1::2].to(work)
    turned = torch.stack([even * cos - odd * sin, even * sin + odd * cos], -1)
    return turned.flatten(-2).to(x.dtype)
