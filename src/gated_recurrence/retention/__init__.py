"""RetNet: `S_t = γ_h S_{t-1} + k_t v_tᵀ`, with a constant decay a head."""

from __future__ import annotations

import functools

import torch
from torch import Tensor

from gated_recurrence.simple_gla import simple_gla

__all__ = ["retention", "retnet_log_decay"]


def retnet_log_decay(heads: int) -> Tensor:
    """`log(1 - 2 ** (-5 - h))` for head h (RetNet, arXiv 2307.08621): `[heads]` float64."""
    return torch.log1p(-torch.exp2(-5.0 - torch.arange(heads, dtype=torch.float64)))


@functools.cache
def _default(heads: int, device: torch.device, dtype: torch.dtype) -> Tensor:
    """Kept, since a copy to a GPU would wait for it; not an inference tensor, which has no gradient."""
    with torch.inference_mode(False):
        return retnet_log_decay(heads).to(device, dtype)


def retention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    log_decay: Tensor | None = None,
    scale: float | None = None,
    initial_state: Tensor | None = None,
    output_final_state: bool = False,
    cu_seqlens: Tensor | None = None,
    *,
    recompute_states: bool = False,
) -> tuple[Tensor, Tensor | None]:
    """`simple_gla` with a constant gate a head.

    `log_decay` `[HV]`, at most zero; default `retnet_log_decay(HV)`. The rest as in `simple_gla`.

    Raises:
        TypeError, ValueError: naming the argument that is wrong.
    """
    if v.ndim != 4 or q.ndim != 4:
        raise ValueError(f"q and v must have four axes, got {tuple(q.shape)} and {tuple(v.shape)}")
    heads = v.shape[2]
    given = log_decay is not None
    if log_decay is None:
        wide = torch.float64 if q.dtype == torch.float64 else torch.float32
        log_decay = _default(heads, q.device, wide)
    if tuple(log_decay.shape) != (heads,):
        raise ValueError(f"log_decay has shape {tuple(log_decay.shape)}, expected ({heads},)")
    if given and bool((log_decay > 0).any()):
        raise ValueError("log_decay must not be above zero")
    g = log_decay.expand(*q.shape[:2], heads)
    return simple_gla(
        *(q, k, v, g, scale, initial_state, output_final_state, cu_seqlens),
        recompute_states=recompute_states,
    )
