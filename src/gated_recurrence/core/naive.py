"""The token-by-token float64 loop that every member's `naive.py` is written on."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

# The state before a token and the token's index to the state after it.
Step = Callable[[Tensor, int], Tensor]


def lift(x: Tensor, heads: int) -> Tensor:
    """`[B, T, H, ...]` in float64 with one entry a value head."""
    x = x.double()
    return x.repeat_interleave(heads // x.shape[2], dim=2)


def recur(
    step: Step, q: Tensor, v: Tensor, scale: float | None, initial_state: Tensor | None
) -> tuple[Tensor, Tensor]:
    """Run `step` over time; returns o `[B, T, HV, V]` and the final state, both float64."""
    batch, length, heads, value = v.shape
    query = lift(q, heads) * (q.shape[-1] ** -0.5 if scale is None else scale)
    state = query.new_zeros(batch, heads, q.shape[-1], value)
    if initial_state is not None:
        state = initial_state.double()
    outs = []
    for t in range(length):
        state = step(state, t)
        outs.append(read(query[:, t], state))
    return (torch.stack(outs, 1) if outs else v.double()), state


def read(x: Tensor, state: Tensor) -> Tensor:
    """`xᵀ S`: `[B, HV, K]` and `[B, HV, K, V]` to `[B, HV, V]`."""
    return torch.einsum("bhk,bhkv->bhv", x, state)


def outer(x: Tensor, y: Tensor) -> Tensor:
    """`x yᵀ`: `[B, HV, K]` and `[B, HV, V]` to `[B, HV, K, V]`."""
    return x.unsqueeze(-1) * y.unsqueeze(-2)
