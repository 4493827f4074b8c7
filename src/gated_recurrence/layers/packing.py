"""Where each token stands in its sequence, and what a sequence hands from one call to the next."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True, slots=True)
class State:
    """What a layer needs of N sequences' earlier tokens.

    `recurrent` `[N, HV, K, V]`; `recent` `[N, W, channels]`, the last W inputs of the convolution or
    token shift, oldest first, or None where a layer looks at no earlier input; `tokens` `[N]` int64,
    how many tokens each sequence has had.
    """

    recurrent: Tensor
    recent: Tensor | None
    tokens: Tensor


@dataclass(frozen=True, slots=True)
class Places:
    """Of each token: `sequence`, the index of its sequence, and `position` in it from this call's
    first token, both int64 of `[B, T]`. `ends` `[N]` counts each sequence's tokens in this call."""

    sequence: Tensor
    position: Tensor
    ends: Tensor

    @property
    def sequences(self) -> int:
        return self.ends.shape[0]


def places(x: Tensor, cu_seqlens: Tensor | None) -> Places:
    """The places of the tokens of x `[B, T, ...]`; nothing is read back from the device."""
    batch, length = x.shape[:2]
    steps = torch.arange(length, device=x.device)
    if cu_seqlens is None:
        rows = torch.arange(batch, device=x.device)
        return Places(
            rows[:, None].expand(batch, length),
            steps.expand(batch, length),
            torch.full((batch,), length, device=x.device),
        )
    if batch != 1:
        raise ValueError(f"cu_seqlens packs sequences into one row, but x has batch size {batch}")
    bounds = cu_seqlens.to(x.device, torch.int64)
    sequence = torch.searchsorted(bounds[1:].contiguous(), steps, right=True)
    return Places(sequence[None], (steps - bounds[sequence])[None], bounds.diff())


def earlier(x: Tensor, recent: Tensor, at: Places, back: int) -> Tensor:
    """`x_{t - back}` of the same sequence for every token, out of `recent` before its first.

    x `[B, T, C]`; recent `[N, W, C]` with W ≥ back. Returns `[B, T, C]`.
    """
    if back == 0:
        return x
    window, (_, length) = recent.shape[1], x.shape[:2]
    source = torch.cat([recent.flatten(0, 1).to(x.dtype), x.flatten(0, 1)])
    row = torch.arange(x.shape[0] * length, device=x.device).view(x.shape[:2])
    before = at.sequence * window + window + at.position - back
    here = recent.shape[0] * window + row - back
    return source[torch.where(at.position < back, before, here)]


def latest(x: Tensor, recent: Tensor, at: Places) -> Tensor:
    """The last W inputs of each sequence after this call: `[N, W, C]`, as `recent`."""
    window = recent.shape[1]
    source = torch.cat([recent.flatten(0, 1).to(x.dtype), x.flatten(0, 1)])
    steps = torch.arange(window, device=x.device)
    back = at.ends[:, None] - window + steps  # a place in this call where it is not negative
    starts = at.ends.cumsum(0) - at.ends
    before = torch.arange(at.sequences, device=x.device)[:, None] * window + window + back
    here = at.sequences * window + starts[:, None] + back
    return source[torch.where(back < 0, before, here)]
