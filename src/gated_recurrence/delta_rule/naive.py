"""DeltaNet: `S_t = S_{t-1} + k_t (β_t (v_t - k_tᵀ S_{t-1}))ᵀ`."""

from __future__ import annotations

from torch import Tensor

from gated_recurrence.core.naive import lift, outer, read, recur


def delta_rule(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    beta: Tensor,
    scale: float | None = None,
    initial_state: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """The float64 recurrence, one token at a time; the oracle of the member."""
    heads = v.shape[2]
    k, v = lift(k, heads), lift(v, heads)
    beta = lift(beta, heads)

    def step(state: Tensor, t: int) -> Tensor:
        return state + outer(k[:, t], beta[:, t, :, None] * (v[:, t] - read(k[:, t], state)))

    return recur(step, q, v, scale, initial_state)
