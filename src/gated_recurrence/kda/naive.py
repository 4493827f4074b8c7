"""Kimi delta attention: Gated DeltaNet with `D = diag(e^{g_t})`."""

from __future__ import annotations

from torch import Tensor

from gated_recurrence.core.naive import lift, outer, read, recur


def kda(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    g: Tensor,
    beta: Tensor,
    scale: float | None = None,
    initial_state: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """The float64 recurrence, one token at a time; the oracle of the member."""
    heads = v.shape[2]
    k, v = lift(k, heads), lift(v, heads)
    g = lift(g, heads)
    beta = lift(beta, heads)

    def step(state: Tensor, t: int) -> Tensor:
        kept = g[:, t, :, :, None].exp() * state
        return kept + outer(k[:, t], beta[:, t, :, None] * (v[:, t] - read(k[:, t], kept)))

    return recur(step, q, v, scale, initial_state)
