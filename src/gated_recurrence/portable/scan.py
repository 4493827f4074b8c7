"""The scan of `core.scan` on Triton kernels: the same operands, answers and gradients."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from gated_recurrence.core.chunk import SUB, sum_before, sum_from, to_gate
from gated_recurrence.core.scan import CHUNK
from gated_recurrence.native import dispatch
from gated_recurrence.portable.kernels import gradients, pairs, scans

#: The widest tiles over V and K that leave the state of a scan, and a chunk's gradients, in registers.
TILE_V, TILE_K = 32, 64
#: Of every kernel. Loading ahead takes more shared memory than most GPUs have.
LAUNCH = {"num_warps": 8, "num_stages": 1}
#: The matrix units take no less.
LEAST = 16


@dataclass(frozen=True, slots=True)
class _Operands:
    """Whole chunks, `[N, chunks, C, ...]`, float32 and contiguous."""

    q: Tensor
    k: Tensor
    v: Tensor
    gate: Tensor
    erase: Tensor | None
    log_erase: Tensor
    beta: Tensor | None
    scale: float
    exclusive: bool
    rounded: bool

    @property
    def sizes(self) -> dict[str, Any]:
        """What the compiler knows of every kernel."""
        return {
            "DELTA": self.erase is not None,
            "C": CHUNK,
            "K": self.key,
            "ROUNDED": self.rounded,
            **LAUNCH,
        }

    @property
    def heads(self) -> int:
        return self.q.shape[0]

    @property
    def chunks(self) -> int:
        return self.q.shape[1]

    @property
    def key(self) -> int:
        return self.q.shape[-1]

    @property
    def value(self) -> int:
        return self.v.shape[-1]

    @property
    def width(self) -> int:
        return self.gate.shape[-1]

    @property
    def tile_v(self) -> int:
        return min(TILE_V if self.key <= 128 else LEAST, self.value)

    def empty(self, *last: int) -> Tensor:
        return self.q.new_empty(self.heads, self.chunks, *last)


def _padded_key(size: int) -> int:
    """A power of two that the matrix units take."""
    return max(LEAST, 1 << (size - 1).bit_length())


def _padded_value(size: int) -> int:
    if size <= TILE_V:
        return max(LEAST, 1 << (size - 1).bit_length())
    return -(-size // TILE_V) * TILE_V


def _cut(x: Tensor, width: int) -> Tensor:
    """`[B, H, T, width or less]` in whole chunks, zeroes after it."""
    length = x.shape[-2]
    whole = torch.nn.functional.pad(x, (0, width - x.shape[-1], 0, -length % CHUNK))
    return whole.reshape(-1, whole.shape[-2] // CHUNK, CHUNK, width).contiguous()


def _operands(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    g: Tensor,
    erase: Tensor | None,
    beta: Tensor | None,
    settings: tuple[float, bool, bool],
) -> _Operands:
    key = _padded_key(q.shape[-1])
    scale, exclusive, rounded = settings
    gate = _cut(g, 1 if g.shape[-1] == 1 else key).double().cumsum(-2)
    shifted = torch.nn.functional.pad(gate[..., :-1, :], (0, 0, 1, 0))
    return _Operands(
        q=_cut(q, key),
        k=_cut(k, key),
        v=_cut(v, _padded_value(v.shape[-1])),
        gate=gate,
        erase=None if erase is None else _cut(erase, key),
        log_erase=shifted if exclusive else gate,
        beta=None if beta is None else _cut(beta, 1),
        scale=scale,
        exclusive=exclusive,
        rounded=rounded,
    )


def _weigh(o: _Operands) -> tuple[Tensor, Tensor | None, Tensor | None]:
    """The weights of the output, the pairs of the delta rule, and the inverse they make less I."""
    weights = o.empty(CHUNK, CHUNK)
    inner = inverse = None
    if o.erase is not None:
        inner, inverse = torch.empty_like(weights), torch.empty_like(weights)
    count = o.heads * o.chunks
    strips = 1 if o.width == 1 else CHUNK // SUB
    pairs.weigh[(count, strips)](
        *(o.q, o.k, o.erase, o.gate, o.log_erase, weights, inner, o.scale),
        **o.sizes, WIDTH=o.width, SUB=SUB,
    )  # fmt: skip
    if inverse is not None:
        pairs.invert[(count,)](inner, o.beta, inverse, C=CHUNK, **LAUNCH)
    return weights, inner, inverse


def _state(x: Tensor, o: _Operands) -> Tensor:
    """A state `[B, H, K, V]` with the padding of the operands."""
    short = (0, o.value - x.shape[-1], 0, o.key - x.shape[-2])
    return torch.nn.functional.pad(x, short).reshape(-1, o.key, o.value).contiguous()


class TritonScan(torch.autograd.Function):
    """What `core.scan` applies, for float32 tensors with at least one token."""

    @staticmethod
    def forward(
        ctx: Any,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        g: Tensor,
        erase: Tensor | None,
        beta: Tensor | None,
        state: Tensor,
        *settings: Any,
    ) -> tuple[Tensor, Tensor]:
        dispatch.allow_portable("forward scan")
        o = _operands(q, k, v, g, erase, beta, settings)
        weights, inner, inverse = _weigh(o)
        states, out = o.empty(o.key, o.value), torch.empty_like(o.v)
        residual = update = None
        if o.erase is not None:
            residual, update = torch.empty_like(o.v), torch.empty_like(o.v)
        first = _state(state, o)
        final = torch.empty_like(first)
        scans.forward[(o.heads, o.value // o.tile_v)](
            *(o.q, o.k, o.v, o.erase, o.gate, o.log_erase, o.beta, weights, inverse),
            *(first, states, residual, update, out, final, o.chunks, o.scale),
            **o.sizes, V=o.value, BV=o.tile_v, WIDTH=o.width,
        )  # fmt: skip
        ctx.save_for_backward(
            q, k, v, g, erase, beta, weights, inner, inverse, states, residual, update
        )
        ctx.settings = settings
        rows = out.reshape(*q.shape[:2], -1, o.value)[..., : q.shape[-2], : v.shape[-1]]
        final = final.reshape(*q.shape[:2], o.key, o.value)
        return rows.contiguous(), final[..., : q.shape[-1], : v.shape[-1]].contiguous()

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, d_out: Tensor, d_final: Tensor) -> tuple[Tensor | None, ...]:
        dispatch.allow_portable("backward scan")
        q, k, v, g, erase, beta, *kept = ctx.saved_tensors
        weights, inner, inverse, states, residual, update = kept
        o = _operands(q, k, v, g, erase, beta, ctx.settings)
        do, d_final = _cut(d_out, o.value), _state(d_final, o)
        d_states, d_v, d_first = (torch.empty_like(x) for x in (states, o.v, d_final))
        d_scaled = None if erase is None else torch.empty_like(o.v)
        common = {**o.sizes, "V": o.value, "BV": o.tile_v, "WIDTH": o.width}
        scans.reverse[(o.heads, o.value // o.tile_v)](
            *(o.q, o.k, o.erase, o.gate, o.log_erase, o.beta, weights, inverse, do),
            *(d_final, d_states, d_scaled, d_v, d_first, o.chunks, o.scale),
            **common,
        )  # fmt: skip
        # Through the states and, with a scalar gate, of the pairs.
        read, end = torch.empty_like(o.q), torch.empty_like(o.q)
        d_q, d_k = torch.empty_like(o.q), torch.empty_like(o.q)
        erased, d_erase, d_beta, d_inner = (
            None if x is None else torch.empty_like(x) for x in (o.erase, o.erase, o.beta, inner)
        )
        last, between, d_weights = o.empty(o.key), o.empty(CHUNK), torch.empty_like(weights)
        tile_k = min(TILE_K, o.key)
        gradients.gradients[(o.heads * o.chunks, o.key // tile_k)](
            *(o.q, o.k, o.erase, o.gate, o.log_erase, o.beta, weights, inner, states, d_states),
            *(residual, o.v if update is None else update, do, d_scaled, d_v),
            *(read, end, erased, last, d_beta, d_weights, d_inner),
            *(d_q, d_k, d_erase, between, o.scale),
            **common, EXCLUSIVE=o.exclusive, BK=tile_k,
        )  # fmt: skip
        if o.width == 1:
            # A pair gives to the log decay of the token after its column, and of none before that.
            d_g = torch.nn.functional.pad(between[..., :-1], (1, 0)).unsqueeze(-1)
        else:
            d_g = _pairs_by_channel(o, d_weights, d_inner, d_q, d_k, d_erase)
        d_g += sum_from(to_gate(o.q * read, o.gate), strict=False)
        d_g += sum_before(to_gate(o.k * end, o.gate))
        kept_last = o.gate[..., -1, :].exp().float() * last
        d_g += to_gate(kept_last.unsqueeze(-2), o.gate)
        if o.erase is not None and erased is not None:
            assert d_erase is not None
            d_g += sum_from(to_gate(o.erase * erased, o.gate), o.exclusive)
            d_erase += erased

        def whole(x: Tensor | None, like: Tensor | None) -> Tensor | None:
            if x is None or like is None:
                return None
            rows = x.reshape(*like.shape[:2], -1, x.shape[-1])
            return rows[..., : like.shape[-2], : like.shape[-1]]

        merged = (whole(d_q + read, q), whole(d_k + end, k), whole(d_v, v), whole(d_g, g))
        d_first = d_first.reshape(*q.shape[:2], o.key, o.value)
        d_first = d_first[..., : q.shape[-1], : v.shape[-1]]
        return (*merged, whole(d_erase, erase), whole(d_beta, beta), d_first, None, None, None)


def _pairs_by_channel(
    o: _Operands,
    d_weights: Tensor,
    d_inner: Tensor | None,
    d_q: Tensor,
    d_k: Tensor,
    d_erase: Tensor | None,
) -> Tensor:
    """Writes the gradients of the pairs, and returns that of the log decays, `[N, chunks, C, K]`."""
    strips = CHUNK // SUB
    within, by_rows, by_columns = (torch.empty_like(o.q) for _ in range(3))
    by_erase = None if o.erase is None else torch.empty_like(o.q)
    over = o.q.new_zeros(o.heads, o.chunks, strips, strips, o.key)
    pairs.weigh_backward[(o.heads * o.chunks, strips)](
        *(o.q, o.k, o.erase, o.gate, o.log_erase, d_weights, d_inner),
        *(d_q, d_k, d_erase, within, by_rows, by_erase, by_columns, over),
        **o.sizes, EXCLUSIVE=o.exclusive, SUB=SUB,
    )  # fmt: skip

    def by_strip(x: Tensor) -> Tensor:
        return x.reshape(*x.shape[:-2], strips, SUB, o.key)

    d_g = by_strip(within) + sum_from(by_strip(by_rows), strict=False)
    if by_erase is not None:
        d_g += sum_from(by_strip(by_erase), o.exclusive)
    d_g += sum_before(by_strip(by_columns))
    for strip in range(1, strips - 1):
        crossing = over[..., :strip, strip + 1 :, :].sum((-3, -2))
        d_g[..., strip, :, :] += crossing.unsqueeze(-2)
    return d_g.flatten(-3, -2)
