"""GDN-2: `S_t = D S + k_t (w_t ∘ v_t - (b_t ∘ k_t)ᵀ D S)ᵀ`, `D = diag(e^{g_t})`."""

from __future__ import annotations

from torch import Tensor

from gated_recurrence.core.checks import check
from gated_recurrence.core.drive import drive, spread, working_dtype

__all__ = ["gated_delta_rule_2"]


def gated_delta_rule_2(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    g: Tensor,
    b: Tensor,
    w: Tensor,
    scale: float | None = None,
    initial_state: Tensor | None = None,
    output_final_state: bool = False,
    cu_seqlens: Tensor | None = None,
) -> tuple[Tensor, Tensor | None]:
    """GDN-2: `S_t = D S + k_t (w_t ∘ v_t - (b_t ∘ k_t)ᵀ D S)ᵀ`, `D = diag(e^{g_t})`.

    q, k `[B, T, H, K]`; v `[B, T, HV, V]`; g `[B, T, HV, K]`; b `[B, T, HV, K]`; w `[B, T, HV, V]`.
    `o_t = s q_tᵀ S_t` with `scale` s (default `K ** -0.5`); `initial_state` `[N, HV, K, V]`;
    `cu_seqlens` `[N + 1]` packs N sequences into one row (B = 1). Returns o in q's dtype, and the
    final states (float32, or float64 for float64 inputs) or None. bfloat16 has bfloat16 products.

    Raises:
        TypeError, ValueError: naming the argument that is wrong; see `core.checks.check`.
    """
    bounds = check(
        q, k, v, {"g": (g, "BTGK"), "b": (b, "BTGK"), "w": (w, "BTGV")}, initial_state, cu_seqlens
    )
    dtype, heads = working_dtype(q), v.shape[2]
    key = spread(k.to(dtype), heads)
    out, final = drive(
        q,
        k,
        w.to(dtype) * v.to(dtype),
        g,
        erase=b.to(dtype) * key,
        bounds=bounds,
        packed=cu_seqlens is not None,
        scale=scale,
        initial_state=initial_state,
    )
    return out, final if output_final_state else None
