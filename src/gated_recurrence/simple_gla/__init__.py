"""Simple GLA, and Mamba-2's SSD: `S_t = e^{g_t} S_{t-1} + k_t v_tᵀ`, one gate a head."""

from __future__ import annotations

from torch import Tensor

from gated_recurrence.core.checks import check, check_values
from gated_recurrence.core.drive import drive
from gated_recurrence.native import dispatch

__all__ = ["simple_gla"]


def simple_gla(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    g: Tensor,
    scale: float | None = None,
    initial_state: Tensor | None = None,
    output_final_state: bool = False,
    cu_seqlens: Tensor | None = None,
    *,
    recompute_states: bool = False,
) -> tuple[Tensor, Tensor | None]:
    """Simple GLA, and Mamba-2's SSD: `S_t = e^{g_t} S_{t-1} + k_t v_tᵀ`, one gate a head.

    q, k `[B, T, H, K]`; v `[B, T, HV, V]`; g `[B, T, HV]`.
    `o_t = s q_tᵀ S_t` with `scale` s (default `K ** -0.5`); `initial_state` `[N, HV, K, V]`;
    `cu_seqlens` `[N + 1]` packs N sequences into one row (B = 1). Returns o in q's dtype, and the
    final states (float32, or float64 for float64 inputs) or None. bfloat16 has bfloat16 products.

    On Hopper with bfloat16 and K up to 128 the native kernels run; `recompute_states` and what they do
    with NaN are described in `gated_delta_rule`.

    Raises:
        TypeError, ValueError: naming the argument that is wrong; see `core.checks.check`.
    """
    out, final = run(
        *("simple_gla", q, k, v, {"g": g}, scale, initial_state, cu_seqlens, recompute_states)
    )
    return out, final if output_final_state else None


def run(
    member: str,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    gate: dict[str, Tensor],
    scale: float | None,
    initial_state: Tensor | None,
    cu_seqlens: Tensor | None,
    recompute_states: bool,
) -> tuple[Tensor, Tensor]:
    """The output and the final states of a member with one gate a head.

    `gate` has what it is called, in errors, and its `[B, T, HV]`.
    """
    ((name, g),) = gate.items()
    bounds = check(q, k, v, {name: (g, "BTG")}, initial_state, cu_seqlens, values=False)
    if dispatch.native(member, q, v, padded=True):
        from gated_recurrence.native import gated_delta_rule as kernels

        return kernels.gated_delta_rule(
            *(q, k, v, g, None),
            scale=scale,
            initial_state=initial_state,
            bounds=bounds,
            recompute_states=recompute_states,
        )
    check_values({"q": q, "k": k, "v": v, **gate, "initial_state": initial_state})
    return drive(
        q,
        k,
        v,
        g.unsqueeze(-1),
        bounds=bounds,
        packed=cu_seqlens is not None,
        scale=scale,
        initial_state=initial_state,
    )
