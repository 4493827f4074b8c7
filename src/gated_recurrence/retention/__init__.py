"""RetNet: `S_t = γ_h S_{t-1} + k_t v_tᵀ`, with a constant decay a head."""

from __future__ import annotations

import functools

import torch
from torch import Tensor

from gated_recurrence.core.checks import check_tensors, check_values
from gated_recurrence.simple_gla import run

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
    given = {} if log_decay is None else {"log_decay": log_decay}
    check_tensors({"q": q, "v": v, **given})
    if v.ndim != 4 or q.ndim != 4:
        raise ValueError(f"q and v must have four axes, got {tuple(q.shape)} and {tuple(v.shape)}")
    heads = v.shape[2]
    if log_decay is None:
        wide = torch.float64 if q.dtype == torch.float64 else torch.float32
        log_decay = _default(heads, q.device, wide)
    elif tuple(log_decay.shape) != (heads,):
        raise ValueError(f"log_decay has shape {tuple(log_decay.shape)}, expected ({heads},)")
    else:
        # Also where the kernels run: so few are read at once.
        check_values(given, finite=False)
    g = log_decay.expand(*q.shape[:2], heads)
    out, final = run(
        *("retention", q, k, v, {"log_decay": g}, scale, initial_state, cu_seqlens),
        recompute_states,
    )
    return out, final if output_final_state else None
