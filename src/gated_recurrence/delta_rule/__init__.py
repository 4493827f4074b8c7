"""DeltaNet: `S_t = S_{t-1} + k_t (β_t (v_t - k_tᵀ S_{t-1}))ᵀ`."""

from __future__ import annotations

from torch import Tensor

from gated_recurrence.core.checks import check, check_values
from gated_recurrence.core.drive import drive
from gated_recurrence.native import dispatch

__all__ = ["delta_rule"]


def delta_rule(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    beta: Tensor,
    scale: float | None = None,
    initial_state: Tensor | None = None,
    output_final_state: bool = False,
    cu_seqlens: Tensor | None = None,
    *,
    recompute_states: bool = False,
) -> tuple[Tensor, Tensor | None]:
    """DeltaNet: `S_t = S_{t-1} + k_t (β_t (v_t - k_tᵀ S_{t-1}))ᵀ`.

    q, k `[B, T, H, K]`; v `[B, T, HV, V]`; beta `[B, T, HV]`.
    `o_t = s q_tᵀ S_t` with `scale` s (default `K ** -0.5`); `initial_state` `[N, HV, K, V]`;
    `cu_seqlens` `[N + 1]` packs N sequences into one row (B = 1). Returns o in q's dtype, and the
    final states (float32, or float64 for float64 inputs) or None. bfloat16 has bfloat16 products.

    On Hopper with bfloat16 and K up to 128 the native kernels of `gated_delta_rule` run, with a gate
    of zero; `recompute_states` and what they do with NaN are described there.

    Raises:
        TypeError, ValueError: naming the argument that is wrong; see `core.checks.check`.
    """
    bounds = check(q, k, v, {"beta": (beta, "BTG")}, initial_state, cu_seqlens, values=False)
    if dispatch.native("delta_rule", q, v, padded=True):
        from gated_recurrence.native import gated_delta_rule as kernels

        out, final = kernels.gated_delta_rule(
            *(q, k, v, None, beta),
            scale=scale,
            initial_state=initial_state,
            bounds=bounds,
            recompute_states=recompute_states,
        )
        return out, final if output_final_state else None
    check_values({"q": q, "k": k, "v": v, "beta": beta, "initial_state": initial_state})
    out, final = drive(
        q,
        k,
        v,
        None,
        erase=k,
        beta=beta.unsqueeze(-1),
        bounds=bounds,
        packed=cu_seqlens is not None,
        scale=scale,
        initial_state=initial_state,
    )
    return out, final if output_final_state else None
