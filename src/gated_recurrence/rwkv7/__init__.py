"""RWKV-7: `S_t = diag(e^{g_t}) S_{t-1} + b_t (a_tᵀ S_{t-1})ᵀ + k_t v_tᵀ`."""

from __future__ import annotations

import torch
from torch import Tensor

from gated_recurrence.core.checks import check
from gated_recurrence.core.drive import drive, spread

__all__ = ["rwkv7"]


def rwkv7(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    g: Tensor,
    a: Tensor,
    b: Tensor,
    scale: float | None = None,
    initial_state: Tensor | None = None,
    output_final_state: bool = False,
    cu_seqlens: Tensor | None = None,
) -> tuple[Tensor, Tensor | None]:
    """RWKV-7: `S_t = diag(e^{g_t}) S_{t-1} + b_t (a_tᵀ S_{t-1})ᵀ + k_t v_tᵀ`.

    q, k `[B, T, H, K]`; v `[B, T, HV, V]`; g `[B, T, HV, K]`; a `[B, T, HV, K]`; b `[B, T, HV, K]`.
    `o_t = s q_tᵀ S_t` with `scale` s (default `K ** -0.5`); `initial_state` `[N, HV, K, V]`;
    `cu_seqlens` `[N + 1]` packs N sequences into one row (B = 1). Returns o in q's dtype, and the
    final states (float32, or float64 for float64 inputs) or None. bfloat16 has bfloat16 products.

    Raises:
        TypeError, ValueError: naming the argument that is wrong; see `core.checks.check`.
    """
    bounds = check(
        q, k, v, {"g": (g, "BTGK"), "a": (a, "BTGK"), "b": (b, "BTGK")}, initial_state, cu_seqlens
    )
    # Two steps a token: decay and the low-rank term (v = 0), then the write (no decay, no erase).
    key = spread(k, v.shape[2])
    out, final = drive(
        _interleave(torch.zeros_like(q), q),
        _interleave(b, key),
        _interleave(torch.zeros_like(v), v),
        _interleave(g, torch.zeros_like(g)),
        erase=_interleave(-a, torch.zeros_like(a)),
        exclusive=True,
        bounds=[2 * bound for bound in bounds],
        packed=cu_seqlens is not None,
        scale=scale,
        initial_state=initial_state,
    )
    out = out[:, 1::2]
    return out, final if output_final_state else None


def _interleave(first: Tensor, second: Tensor) -> Tensor:
    return torch.stack([first, second], 2).flatten(1, 2)
