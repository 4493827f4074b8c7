"""Gated linear attention: `S_t = diag(e^{g_t}) S_{t-1} + k_t v_tᵀ`."""

from __future__ import annotations

from torch import Tensor

from gated_recurrence.core.checks import check, check_values
from gated_recurrence.core.drive import drive
from gated_recurrence.native import dispatch

__all__ = ["gla"]


def gla(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    g: Tensor,
    scale: float | None = None,
    initial_state: Tensor | None = None,
    output_final_state: bool = False,
    cu_seqlens: Tensor | None = None,
) -> tuple[Tensor, Tensor | None]:
    """Gated linear attention: `S_t = diag(e^{g_t}) S_{t-1} + k_t v_tᵀ`.

    q, k `[B, T, H, K]`; v `[B, T, HV, V]`; g `[B, T, HV, K]`.
    `o_t = s q_tᵀ S_t` with `scale` s (default `K ** -0.5`); `initial_state` `[N, HV, K, V]`;
    `cu_seqlens` `[N + 1]` packs N sequences into one row (B = 1). Returns o in q's dtype, and the
    final states (float32, or float64 for float64 inputs) or None. bfloat16 has bfloat16 products.

    Raises:
        TypeError, ValueError: naming the argument that is wrong; see `core.checks.check`.
    """
    bounds = check(q, k, v, {"g": (g, "BTGK")}, initial_state, cu_seqlens, values=False)
    if dispatch.GATES_A_CHANNEL and dispatch.native("gla", q, v, padded=True):
        from gated_recurrence.native import channel as kernels

        out, final = kernels.gla(
            *(q, k, v, g), scale=scale, initial_state=initial_state, bounds=bounds
        )
        return out, final if output_final_state else None
    check_values({"q": q, "k": k, "v": v, "g": g, "initial_state": initial_state})
    out, final = drive(
        q,
        k,
        v,
        g,
        bounds=bounds,
        packed=cu_seqlens is not None,
        scale=scale,
        initial_state=initial_state,
    )
    return out, final if output_final_state else None
