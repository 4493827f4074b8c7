"""The members with one gate a head on Hopper: two kernels forward and two backward.

Gated DeltaNet, and without a delta rule (`beta` None, another build of the same kernels
and one more for dg) simple GLA.

A chunk is 64 tokens of one sequence, a chunk-head one of its value heads; workspaces are padded to
whole chunks. `sm90/parameters.cuh` says what each field of `Parameters` is.
"""

from __future__ import annotations

import ctypes
import math
from ctypes import c_float, c_int, c_int64, c_void_p
from typing import Any

import torch
from torch import Tensor

from gated_recurrence.core.scan import CHUNK
from gated_recurrence.native import driver, widths
from gated_recurrence.native.dispatch import HEAD
from gated_recurrence.native.driver import TensorMap, copyable, launch
from gated_recurrence.native.kernels import DELTA, GATE_HEADS, GROUPS, PLAIN, Kernel
from gated_recurrence.native.plan import Plan, plan

ROWS = ("q", "k", "v", "out", "d_out", "d_v", "gate")
TILES = ("inverse", "weights", "update", "state", "d_state", "q_read", "k_end")
POINTERS = (
    *("sequences", "forward_order", "order", "g", "beta", "vectors", "inverse_out", "weights_out"),
    *("initial_state", "d_final_state", "final_state", "d_initial_state", "out_rows", "d_v_rows"),
    *("d_q", "d_k", "d_q_wide", "d_k_wide", "d_value_parts"),
    *(
        "last_state",
        "d_start_parts",
        "d_end_parts",
        "d_gate_parts",
        "d_channel_parts",
        "prepared",
        "ready",
        "taken",
        "d_g",
        "d_beta",
    ),
)
COUNTS = (
    *("heads", "value_heads", "chunk_heads", "sequence_heads"),
    *("keep_states", "state_blocks"),
)


class Parameters(ctypes.Structure):
    """`Parameters` of sm90/parameters.cuh."""

    _fields_ = (
        *((name, TensorMap) for name in (*ROWS, *TILES)),
        *((name, c_void_p) for name in POINTERS),
        ("length", c_int64),
        *((name, c_int) for name in COUNTS),
        *((name, c_float) for name in ("scale", "mantissa", "power")),
        ("_padding", ctypes.c_char * 128),  # the driver copies a multiple of a map's alignment
    )


class _Call:
    """The parameters of one call, and its launches on torch's current stream."""

    def __init__(self, q: Tensor, v: Tensor, layout: Plan, scale: float) -> None:
        self.device = q.device
        self._stream = driver.enter(q.device)
        self.chunks = layout.order.shape[0]
        self.chunk_heads = self.chunks * v.shape[2]
        self.sequence_heads = layout.sequences.shape[0] * v.shape[2]
        self._fields = fields = Parameters()
        fields.length, fields.heads, fields.value_heads = q.shape[1], q.shape[2], v.shape[2]
        fields.chunk_heads, fields.sequence_heads = self.chunk_heads, self.sequence_heads
        fields.scale = scale
        fields.mantissa, fields.power = split_scale(scale)
        self.point(
            sequences=layout.sequences, forward_order=layout.forward_order, order=layout.order
        )

    def set(self, **counts: int) -> None:
        for name, count in counts.items():
            setattr(self._fields, name, count)

    def point(self, **tensors: Tensor | None) -> None:
        for name, tensor in tensors.items():
            setattr(self._fields, name, None if tensor is None else tensor.data_ptr())

    def map(self, **tensors: Tensor | None) -> None:
        for name, tensor in tensors.items():
            if tensor is None:
                continue
            mapped = driver.map_rows if name in ROWS else driver.map_tiles
            setattr(self._fields, name, mapped(tensor))

    def tiles(self, rows: int, columns: int) -> Tensor:
        shape = (self.chunk_heads, rows, columns)
        return torch.empty(shape, dtype=torch.bfloat16, device=self.device)

    def states(self, delta: bool) -> tuple[Tensor, Tensor | None]:
        """S^T and, with a delta rule, U' of every chunk, to be filled: 32 and 16 KiB a chunk-head."""
        update = self.tiles(CHUNK, HEAD) if delta else None
        return self.tiles(HEAD, HEAD), update

    def floats(self, *shape: int) -> Tensor:
        return torch.empty(shape, dtype=torch.float32, device=self.device)

    def resident(self, kernel: Kernel) -> int:
        """The blocks of a kernel that the device holds at once."""
        return kernel.blocks * driver.multiprocessors(self.device)

    def launch(self, kernel: Kernel, blocks: int) -> None:
        launch(kernel, blocks, ctypes.addressof(self._fields), self.device, self._stream)


class _Recurrence(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        g: Tensor,
        beta: Tensor | None,
        initial_state: Tensor | None,
        scale: float,
        layout: Plan,
        keep_states: bool,
    ) -> tuple[Tensor, Tensor]:
        call = _Call(q, v, layout, scale)
        vectors = call.floats(call.chunk_heads, 4, CHUNK)
        delta = beta is not None
        kernels = DELTA if delta else PLAIN
        weights = call.tiles(CHUNK, CHUNK)
        inverse = call.tiles(CHUNK, CHUNK) if delta else None
        out = torch.empty(v.shape, dtype=v.dtype, device=v.device)
        final = call.floats(layout.sequences.shape[0], v.shape[2], HEAD, HEAD)
        state, update = call.states(delta) if keep_states else (None, None)
        call.map(q=q, k=k, v=v, out=out, inverse=inverse, weights=weights)
        call.point(g=g, beta=beta, vectors=vectors, inverse_out=inverse, weights_out=weights)
        last = torch.empty_like(final) if not delta and ctx.needs_input_grad[3] else None
        call.point(initial_state=initial_state, final_state=final, last_state=last, out_rows=out)
        call.map(update=update, state=state)
        call.point(sequences=layout.longest_first)
        call.set(keep_states=int(keep_states))
        prepared = torch.zeros(call.chunk_heads, dtype=torch.int32, device=v.device)
        call.point(prepared=prepared)
        scans = 2 * call.sequence_heads
        call.launch(kernels.prepare, _prepare_blocks(call, scans))
        call.launch(kernels.forward, scans)
        ctx.save_for_backward(
            *(q, k, v, vectors, inverse, weights, initial_state, update, state, last)
        )
        ctx.settings = scale, layout
        ctx.set_materialize_grads(False)
        return out, final

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(
        ctx: Any, d_out: Tensor | None, d_final: Tensor | None
    ) -> tuple[Tensor | None, ...]:
        q, k, v, vectors, inverse, weights, initial_state, update, state, last = ctx.saved_tensors
        call = _Call(q, v, ctx.settings[1], ctx.settings[0])
        d_out = torch.zeros_like(v) if d_out is None else _readable(d_out)
        d_final = None if d_final is None else d_final.contiguous()
        delta = inverse is not None
        kernels = DELTA if delta else PLAIN
        kept = state is not None
        if not kept:
            state, update = call.states(delta)
        d_state = call.tiles(HEAD, HEAD)
        d_v = torch.empty(v.shape, dtype=v.dtype, device=v.device)
        d_initial = None if initial_state is None else torch.empty_like(initial_state)
        call.map(q=q, k=k, v=v, d_out=d_out, d_v=d_v, inverse=inverse, weights=weights)
        call.map(update=update, state=state, d_state=d_state)
        call.point(vectors=vectors, d_v_rows=d_v)
        call.point(initial_state=initial_state, d_final_state=d_final, d_initial_state=d_initial)
        starts, ends = call.floats(2, call.sequence_heads, 8)
        call.point(d_start_parts=starts, d_end_parts=ends)
        parts = None if delta else call.floats(call.chunk_heads, 2, 4)
        call.point(d_gate_parts=parts, last_state=last)
        # What begins at zero, in one allocation.
        count = v.shape[0] * v.shape[1] * v.shape[2]
        zeroes = call.floats(2 * count + call.chunk_heads + 1).zero_()
        d_g, d_beta = (zeroes[i * count : (i + 1) * count].view(v.shape[:3]) for i in range(2))
        call.point(ready=zeroes[2 * count :], taken=zeroes[-1:], d_g=d_g, d_beta=d_beta)
        blocks = 2 if kept else 4
        call.set(state_blocks=blocks)
        d_q, d_k = (_per_value_head(x, v) for x in (q, k))
        wide = d_q.dtype == torch.float32
        call.point(**({"d_q_wide": d_q, "d_k_wide": d_k} if wide else {"d_q": d_q, "d_k": d_k}))
        call.launch(kernels.states, blocks * call.sequence_heads)
        gradients = min(2 * call.chunk_heads, call.resident(kernels.gradients))
        call.launch(kernels.gradients, gradients)
        if kernels.gates is not None and ctx.needs_input_grad[3]:
            call.launch(kernels.gates, call.chunks * -(-v.shape[2] // GATE_HEADS))
        d_q, d_k = _over_group(d_q, q), _over_group(d_k, k)
        return d_q, d_k, d_v, d_g, d_beta if delta else None, d_initial, None, None, None


def split_scale(scale: float) -> tuple[float, float]:
    """A factor from 1 to 2, or its negative, and a power of two, whose product `scale` is."""
    if scale == 0 or not math.isfinite(scale):
        return 1.0, scale
    fraction, exponent = math.frexp(scale)
    return 2 * fraction, math.ldexp(0.5, exponent)


def _prepare_blocks(call: _Call, scans: int, groups: int = GROUPS) -> int:
    """As many blocks of what prepares as there are multiprocessors beside a forward scan's blocks, so
    that the two run at once; all of them where that would leave too few. A cluster is two."""
    multiprocessors = driver.multiprocessors(call.device)
    beside = multiprocessors - scans
    most = beside if 3 * beside >= multiprocessors else multiprocessors
    wanted = -(-call.chunk_heads // groups)
    return min(most // 2 * 2, wanted + wanted % 2)


def _per_value_head(x: Tensor, v: Tensor) -> Tensor:
    shape = (*v.shape[:3], x.shape[-1])
    dtype = x.dtype if x.shape[2] == v.shape[2] else torch.float32
    return torch.empty(shape, dtype=dtype, device=x.device)


def _over_group(grad: Tensor, like: Tensor) -> Tensor:
    if grad.shape == like.shape:
        return grad
    batch, length, heads, channels = like.shape
    return grad.view(batch, length, heads, -1, channels).sum(3).to(like.dtype)


def _readable(x: Tensor) -> Tensor:
    return x if copyable(x) else x.contiguous()


def _will_differentiate(*tensors: Tensor | None) -> bool:
    return torch.is_grad_enabled() and any(x is not None and x.requires_grad for x in tensors)


def gated_delta_rule(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    g: Tensor | None,
    beta: Tensor | None,
    *,
    scale: float | None,
    initial_state: Tensor | None,
    bounds: list[int],
    recompute_states: bool,
) -> tuple[Tensor, Tensor]:
    """o and the final states, of arguments that `checks.check` and `dispatch` have let through.

    `g` None is no decay, `beta` None no delta rule. K up to `HEAD`, any V (`widths.py`).
    """
    key, value = q.shape[-1], v.shape[-1]
    differentiate = _will_differentiate(q, k, v, g, beta, initial_state)
    if g is None:
        g = torch.zeros(v.shape[:3], dtype=torch.float32, device=v.device)
    gate = widths.split_gate(g, value).float().contiguous()
    rate = None if beta is None else widths.split_gate(beta, value).float().contiguous()
    state = None
    if initial_state is not None:
        state = widths.split_state(initial_state.float()).contiguous()
    values = widths.split_values(v)
    out, final = _Recurrence.apply(  # type: ignore[no-untyped-call]
        *(_readable(x) for x in (widths.wide(q, HEAD), widths.wide(k, HEAD), values)),
        gate,
        rate,
        state,
        key**-0.5 if scale is None else float(scale),
        plan(q.shape[0], tuple(bounds), q.device),
        not recompute_states and differentiate,
    )
    if (key, value) == (HEAD, HEAD):
        return out, final
    return widths.join_values(out, value), widths.join_state(final, key, value)
