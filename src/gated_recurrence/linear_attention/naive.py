"""Linear attention: `S_t = S_{t-1} + k_t v_tᵀ`."""

from __future__ import annotations

from torch import Tensor

from gated_recurrence.core.naive import lift, outer, recur


def linear_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    scale: float | None = None,
    initial_state: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """The float64 recurrence, one token at a time; the oracle of the member."""
    heads = v.shape[2]
    k, v = lift(k, heads), lift(v, heads)

    def step(state: Tensor, t: int) -> Tensor:
        return state + outer(k[:, t], v[:, t])

    return recur(step, q, v, scale, initial_state)
