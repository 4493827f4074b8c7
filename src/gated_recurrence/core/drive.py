"""From a member's checked arguments to the scan and back."""

from __future__ import annotations

import itertools

import torch
from torch import Tensor

from gated_recurrence.core.scan import scan


def working_dtype(q: Tensor) -> torch.dtype:
    return torch.float64 if q.dtype == torch.float64 else torch.float32


def spread(x: Tensor, heads: int) -> Tensor:
    """`[B, T, H or HV, ...]` to one entry a value head; its gradient sums over the group."""
    return x if x.shape[2] == heads else x.repeat_interleave(heads // x.shape[2], dim=2)


def drive(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    g: Tensor | None,
    *,
    bounds: list[int],
    packed: bool,
    scale: float | None,
    initial_state: Tensor | None,
    erase: Tensor | None = None,
    beta: Tensor | None = None,
    exclusive: bool = False,
) -> tuple[Tensor, Tensor]:
    """Run the scan on `[B, T, H, ...]` tensors. bfloat16 has bfloat16 products.

    Returns the output in q's dtype, `[B, T, HV, V]`, and the final states `[N, HV, K, V]` in the
    working dtype. `scale` defaults to `K ** -0.5`.
    """
    dtype, heads = working_dtype(q), v.shape[2]

    def move(x: Tensor) -> Tensor:
        return spread(x.to(dtype), heads).transpose(1, 2)

    query, key, value = move(q), move(k), move(v)
    gate = value.new_zeros(*value.shape[:-1], 1) if g is None else move(g)
    eraser = None if erase is None else move(erase)
    rate = None if beta is None else move(beta)
    if eraser is not None and rate is None:
        rate = value.new_ones(*value.shape[:-1], 1)
    sequences = len(bounds) - 1 if packed else q.shape[0]
    if initial_state is None:
        states = value.new_zeros(sequences, heads, q.shape[-1], v.shape[-1])
    else:
        states = initial_state.to(dtype)
    factor = q.shape[-1] ** -0.5 if scale is None else float(scale)
    outs, finals = [], []
    for index, (first, end) in enumerate(itertools.pairwise(bounds)):
        part = slice(first, end)
        out, final = scan(
            query[:, :, part],
            key[:, :, part],
            value[:, :, part],
            gate[:, :, part],
            None if eraser is None else eraser[:, :, part],
            None if rate is None else rate[:, :, part],
            states[index : index + 1] if packed else states,
            scale=factor,
            exclusive=exclusive,
            rounded=q.dtype == torch.bfloat16,
        )
        outs.append(out)
        finals.append(final)
    return torch.cat(outs, 2).transpose(1, 2).to(q.dtype), torch.cat(finals, 0)
