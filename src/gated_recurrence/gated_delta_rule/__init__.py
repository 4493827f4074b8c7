"""Gated DeltaNet: `S_t = D S + k_t (β_t (v_t - k_tᵀ D S))ᵀ`, `D = e^{g_t}`."""

from __future__ import annotations

from torch import Tensor

from gated_recurrence.core.checks import check, check_values
from gated_recurrence.core.drive import drive
from gated_recurrence.native import dispatch

__all__ = ["gated_delta_rule"]


def gated_delta_rule(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    g: Tensor,
    beta: Tensor,
    scale: float | None = None,
    initial_state: Tensor | None = None,
    output_final_state: bool = False,
    cu_seqlens: Tensor | None = None,
    *,
    recompute_states: bool = False,
) -> tuple[Tensor, Tensor | None]:
    """Gated DeltaNet: `S_t = D S + k_t (β_t (v_t - k_tᵀ D S))ᵀ`, `D = e^{g_t}`.

    q, k `[B, T, H, K]`; v `[B, T, HV, V]`; g `[B, T, HV]`; beta `[B, T, HV]`.
    `o_t = s q_tᵀ S_t` with `scale` s (default `K ** -0.5`); `initial_state` `[N, HV, K, V]`;
    `cu_seqlens` `[N + 1]` packs N sequences into one row (B = 1). Returns o in q's dtype, and the
    final states (float32, or float64 for float64 inputs) or None. bfloat16 has bfloat16 products.

    On Hopper with bfloat16 and K up to 128 the native kernels run (the logger `gated_recurrence` says
    which path and why). They keep the states between forward and backward, 48 KiB a chunk of 64 tokens
    and value head, unless `recompute_states`, which takes longer (docs/recurrence.md says how much);
    the portable path always keeps them. They do not read the values before they start: NaN and
    infinity come out as NaN, at the latest from the chunk of 64 tokens that holds them, and never in
    another sequence; a gate above zero, which the portable path refuses, grows the state.

    Raises:
        TypeError, ValueError: naming the argument that is wrong; see `core.checks.check`.
    """
    gates = {"g": (g, "BTG"), "beta": (beta, "BTG")}
    bounds = check(q, k, v, gates, initial_state, cu_seqlens, values=False)
    packed = cu_seqlens is not None
    if dispatch.native("gated_delta_rule", q, v, padded=True):
        from gated_recurrence.native import gated_delta_rule as kernels

        out, final = kernels.gated_delta_rule(
            *(q, k, v, g, beta),
            scale=scale,
            initial_state=initial_state,
            bounds=bounds,
            recompute_states=recompute_states,
        )
        return out, final if output_final_state else None
    named = {"q": q, "k": k, "v": v, "g": g, "beta": beta, "initial_state": initial_state}
    check_values(named)
    out, final = drive(
        q,
        k,
        v,
        g.unsqueeze(-1),
        erase=k,
        beta=beta.unsqueeze(-1),
        bounds=bounds,
        packed=packed,
        scale=scale,
        initial_state=initial_state,
    )
    return out, final if output_final_state else None
