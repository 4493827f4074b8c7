"""RetNet: `S_t = γ_h S_{t-1} + k_t v_tᵀ`, with a constant decay a head."""

from __future__ import annotations

from torch import Tensor

from gated_recurrence.core.naive import lift, outer, recur


def retention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    log_decay: Tensor,
    scale: float | None = None,
    initial_state: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """The float64 recurrence, one token at a time; `log_decay` is `[HV]`."""
    heads = v.shape[2]
    k, v = lift(k, heads), lift(v, heads)
    decay = log_decay.double().exp()[:, None, None]

    def step(state: Tensor, t: int) -> Tensor:
        return decay * state + outer(k[:, t], v[:, t])

    return recur(step, q, v, scale, initial_state)
