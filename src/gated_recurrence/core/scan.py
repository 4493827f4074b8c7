"""The scan over the chunks of a sequence, with its hand-written backward."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from gated_recurrence import portable
from gated_recurrence.core import chunk as algebra
from gated_recurrence.native import dispatch

# Four 16-row tiles: one warpgroup's rows on Hopper, so that every path shares its rounding points.
CHUNK = 64


def _chunks(x: Tensor | None, count: int) -> list[Tensor] | list[None]:
    if x is None:
        return [None] * count
    if not count:
        return []
    short = count * CHUNK - x.shape[-2]
    # Zero rows are neutral: nothing is written and nothing decays.
    return list(torch.split(torch.nn.functional.pad(x, (0, 0, 0, short)), CHUNK, -2))


def _operands(
    tensors: tuple[Tensor | None, ...], scale: float, exclusive: bool, rounded: bool
) -> list[algebra.Chunk]:
    q = tensors[0]
    assert q is not None
    count = -(-q.shape[-2] // CHUNK)
    out = []
    for qc, kc, vc, gc, ec, bc in zip(*(_chunks(x, count) for x in tensors), strict=True):
        assert qc is not None
        assert kc is not None
        assert vc is not None
        assert gc is not None
        log = gc.double().cumsum(-2)
        # Shifted rather than G - g: the difference would round to a decay slightly above the base.
        log_erase = torch.nn.functional.pad(log[..., :-1, :], (0, 0, 1, 0)) if exclusive else log
        out.append(algebra.Chunk(qc, kc, vc, log, ec, log_erase, bc, scale, exclusive, rounded))
    return out


def _as_written(x: Tensor) -> torch.autocast:
    """Every product in the dtype of its operands: autocast would round the state to bfloat16."""
    return torch.autocast(x.device.type, enabled=False)


class _Scan(torch.autograd.Function):
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
        scale: float,
        exclusive: bool,
        rounded: bool,
    ) -> tuple[Tensor, Tensor]:
        dispatch.allow_portable("forward scan")
        outs, states = [], []
        with _as_written(q):
            for operands in _operands((q, k, v, g, erase, beta), scale, exclusive, rounded):
                states.append(state)
                out, state = algebra.forward(operands, state)
                outs.append(out)
        ctx.save_for_backward(q, k, v, g, erase, beta, *states)
        ctx.settings = (scale, exclusive, rounded)
        merged = torch.cat(outs, -2)[..., : q.shape[-2], :] if outs else torch.zeros_like(v)
        return merged, state.clone()

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, d_out: Tensor, d_state: Tensor) -> tuple[Tensor | None, ...]:
        dispatch.allow_portable("backward scan")
        q, k, v, g, erase, beta, *states = ctx.saved_tensors
        scale, exclusive, rounded = ctx.settings
        operands = _operands((q, k, v, g, erase, beta), scale, exclusive, rounded)
        d_outs = _chunks(d_out, len(operands))
        parts: list[tuple[Tensor | None, ...]] = []
        for index in range(len(operands) - 1, -1, -1):
            d_chunk = d_outs[index]
            assert d_chunk is not None
            with _as_written(q):
                got = algebra.backward(operands[index], states[index], d_chunk, d_state)
            d_state = got.state
            parts.append((got.q, got.k, got.v, got.g, got.erase, got.beta))
        parts.reverse()
        length = q.shape[-2]
        merged: list[Tensor | None] = []
        for position, like in enumerate((q, k, v, g, erase, beta)):
            if like is None:
                merged.append(None)
                continue
            pieces = [p[position] for p in parts]
            whole = torch.cat([p for p in pieces if p is not None], -2) if pieces else None
            merged.append(torch.zeros_like(like) if whole is None else whole[..., :length, :])
        return (*merged, d_state, None, None, None)


def scan(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    g: Tensor,
    erase: Tensor | None,
    beta: Tensor | None,
    state: Tensor,
    *,
    scale: float,
    exclusive: bool,
    rounded: bool,
) -> tuple[Tensor, Tensor]:
    """Run one batch of sequences, heads before time.

    q, k, erase `[B, HV, T, K]`; v `[B, HV, T, V]`; g `[B, HV, T, 1 or K]`; beta `[B, HV, T, 1]`;
    state `[B, HV, K, V]`; all of one working dtype. Returns the output and the final state.
    """
    scanned: Callable[..., Any] = _Scan.apply
    if portable.applies(q, rounded):
        from gated_recurrence.portable.scan import TritonScan

        scanned = TritonScan.apply
    found = scanned(q, k, v, g, erase, beta, state, scale, exclusive, rounded)
    return found[0], found[1]
