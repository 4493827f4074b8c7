"""GDN-2: `S_t = D S + k_t (w_t ∘ v_t - (b_t ∘ k_t)ᵀ D S)ᵀ`, `D = diag(e^{g_t})`."""

from __future__ import annotations

from torch import Tensor

from gated_recurrence.core.naive import lift, outer, read, recur


def gated_delta_rule_2(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    g: Tensor,
    b: Tensor,
    w: Tensor,
    scale: float | None = None,
    initial_state: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """The float64 recurrence, one token at a time; the oracle of the member."""
    heads = v.shape[2]
    k, v = lift(k, heads), lift(v, heads)
    g = lift(g, heads)
    b = lift(b, heads)
    w = lift(w, heads)

    def step(state: Tensor, t: int) -> Tensor:
        kept = g[:, t, :, :, None].exp() * state
        erased = read(b[:, t] * k[:, t], kept)
        return kept + outer(k[:, t], w[:, t] * v[:, t] - erased)

    return recur(step, q, v, scale, initial_state)
