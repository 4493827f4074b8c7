"""The member with a gate a channel and no delta rule, GLA, on Hopper: two kernels forward and three
backward.

As in `gated_delta_rule.py`, whose parameters and frame these are; `sm90/channel.cuh` says how the
decays are taken.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from gated_recurrence.core.scan import CHUNK
from gated_recurrence.native import widths
from gated_recurrence.native.dispatch import HEAD
from gated_recurrence.native.gated_delta_rule import (
    _Call,
    _over_group,
    _per_value_head,
    _prepare_blocks,
    _readable,
    _will_differentiate,
)
from gated_recurrence.native.kernels import CHANNEL, CHANNEL_GROUPS
from gated_recurrence.native.plan import Plan, plan


class _Recurrence(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        g: Tensor,
        initial_state: Tensor | None,
        scale: float,
        layout: Plan,
        keep_states: bool,
    ) -> tuple[Tensor, Tensor]:
        call = _Call(q, v, layout, scale)
        vectors = call.floats(call.chunk_heads, 4, CHUNK)
        weights = call.tiles(CHUNK, CHUNK)
        q_read, k_end = (call.tiles(CHUNK, HEAD) for _ in range(2))
        out = torch.empty(v.shape, dtype=v.dtype, device=v.device)
        final = call.floats(layout.sequences.shape[0], v.shape[2], HEAD, HEAD)
        state = call.tiles(HEAD, HEAD) if keep_states else None
        last = torch.empty_like(final) if ctx.needs_input_grad[3] else None
        prepared = torch.zeros(call.chunk_heads, dtype=torch.int32, device=v.device)
        call.map(q=q, k=k, v=v, gate=g, out=out, weights=weights, state=state)
        call.map(q_read=q_read, k_end=k_end)
        call.point(vectors=vectors, prepared=prepared, sequences=layout.longest_first)
        call.point(initial_state=initial_state, final_state=final, last_state=last, out_rows=out)
        call.set(keep_states=int(keep_states))
        scans = 2 * call.sequence_heads
        call.launch(CHANNEL.prepare, _prepare_blocks(call, scans, CHANNEL_GROUPS))
        call.launch(CHANNEL.forward, scans)
        ctx.save_for_backward(
            *(q, k, v, g, vectors, weights, q_read, k_end, initial_state, state, last)
        )
        ctx.settings = scale, layout
        ctx.set_materialize_grads(False)
        return out, final

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(
        ctx: Any, d_out: Tensor | None, d_final: Tensor | None
    ) -> tuple[Tensor | None, ...]:
        q, k, v, g, vectors, weights, q_read, k_end, initial_state, state, last = ctx.saved_tensors
        call = _Call(q, v, ctx.settings[1], ctx.settings[0])
        d_out = torch.zeros_like(v) if d_out is None else _readable(d_out)
        d_final = None if d_final is None else d_final.contiguous()
        d_state = call.tiles(HEAD, HEAD)
        d_v = torch.empty(v.shape, dtype=v.dtype, device=v.device)
        d_g = torch.empty_like(g)
        d_initial = None if initial_state is None else torch.empty_like(initial_state)
        call.map(q=q, k=k, v=v, gate=g, d_out=d_out, d_v=d_v, weights=weights)
        call.map(state=state, d_state=d_state, q_read=q_read, k_end=k_end)
        call.point(vectors=vectors, d_v_rows=d_v, d_g=d_g, last_state=last)
        call.point(initial_state=initial_state, d_final_state=d_final, d_initial_state=d_initial)
        starts, ends = call.floats(2, call.sequence_heads, 8, HEAD)
        parts = call.floats(call.chunk_heads, 3, HEAD)
        ready = torch.zeros(call.chunk_heads, dtype=torch.int32, device=v.device)
        call.point(d_start_parts=starts, d_end_parts=ends, d_channel_parts=parts, ready=ready)
        blocks = 2
        call.set(state_blocks=blocks)
        d_q, d_k = (_per_value_head(x, v) for x in (q, k))
        wide = d_q.dtype == torch.float32
        call.point(**({"d_q_wide": d_q, "d_k_wide": d_k} if wide else {"d_q": d_q, "d_k": d_k}))
        call.launch(CHANNEL.states, blocks * call.sequence_heads)
        call.launch(CHANNEL.gradients, 2 * call.chunk_heads)
        if CHANNEL.gates is not None and ctx.needs_input_grad[3]:
            call.launch(CHANNEL.gates, call.chunk_heads)
        d_q, d_k = _over_group(d_q, q), _over_group(d_k, k)
        return d_q, d_k, d_v, d_g, d_initial, None, None, None


def gla(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    g: Tensor,
    *,
    scale: float | None,
    initial_state: Tensor | None,
    bounds: list[int],
) -> tuple[Tensor, Tensor]:
    """o and the final states, of arguments that `checks.check` and `dispatch` have let through.

    K up to `HEAD`, any V (`widths.py`).
    """
    key, value = q.shape[-1], v.shape[-1]
    differentiate = _will_differentiate(q, k, v, g, initial_state)
    gate = widths.wide(widths.split_gate(g, value).float(), HEAD).contiguous()
    state = None
    if initial_state is not None:
        state = widths.split_state(initial_state.float()).contiguous()
    values = widths.split_values(v)
    out, final = _Recurrence.apply(  # type: ignore[no-untyped-call]
        *(_readable(x) for x in (widths.wide(q, HEAD), widths.wide(k, HEAD), values, gate)),
        state,
        key**-0.5 if scale is None else float(scale),
        plan(q.shape[0], tuple(bounds), q.device),
        differentiate,
    )
    if (key, value) == (HEAD, HEAD):
        return out, final
    return widths.join_values(out, value), widths.join_state(final, key, value)
