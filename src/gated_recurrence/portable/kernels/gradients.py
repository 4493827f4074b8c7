"""The parallel part of the backward pass: everything that hangs on one chunk alone."""

from __future__ import annotations

import triton
import triton.language as tl

from gated_recurrence.portable.kernels.products import load_gate, power, product, tile


@triton.jit
def _between(pulls, EXCLUSIVE: tl.constexpr, C: tl.constexpr):
    """What pairs give the log decay of each next token: columns up to here, the rows beyond."""
    rows = tl.arange(0, C)
    last = rows[None, :]
    if EXCLUSIVE:
        last += 1
    return tl.sum(tl.where(rows[:, None] > last, tl.cumsum(pulls, 1), 0.0), 0)


@triton.jit
def gradients(
    q, k, erase, gate, log_erase, beta, weights, inner, states, d_states,
    residual, update, d_out, d_scaled, d_v,
    d_read, d_end, d_erased, d_last, d_beta, d_weights, d_inner, d_q, d_k, d_erase, between, scale,
    DELTA: tl.constexpr, EXCLUSIVE: tl.constexpr, C: tl.constexpr, K: tl.constexpr,
    BK: tl.constexpr, V: tl.constexpr, BV: tl.constexpr, WIDTH: tl.constexpr,
    ROUNDED: tl.constexpr,
):  # fmt: skip
    """Program `(chunk, columns of K)`.

    d_read, d_end and d_erased are the gradients of q, k and erase through the states; d_last is that of
    the chunk's last gate through the state it decays, before that decay, a channel. Those of the pairs
    are d_q, d_k, d_erase with a scalar gate, and `between`, for the log decay of each next token; with a
    gate a channel they are left to `weigh_backward`, which reads d_weights and d_inner.
    """
    chunk = tl.program_id(0).to(tl.int64)
    part = tl.program_id(1)
    rows = tl.arange(0, C)
    channels = part * BK + tl.arange(0, BK)
    at_k = tile(chunk * C * K, rows, channels, K)
    at_c = tile(chunk * C * C, rows, rows, C)
    to_weights = tl.zeros((C, C), tl.float32)
    to_inner = tl.zeros((C, C), tl.float32)
    to_q = tl.zeros((C, BK), tl.float32)
    to_end = tl.zeros((C, BK), tl.float32)
    to_erase = tl.zeros((C, BK), tl.float32)
    to_last = tl.zeros((BK,), tl.float32)
    to_beta = tl.zeros((C,), tl.float32)
    for block in range(V // BV):
        columns = block * BV + tl.arange(0, BV)
        at_v = tile(chunk * C * V, rows, columns, V)
        at_s = tile(chunk * K * V, channels, columns, V)
        s = tl.load(states + at_s)
        ds = tl.load(d_states + at_s)
        do = tl.load(d_out + at_v)
        u = tl.load(update + at_v)
        to_weights += product(do, tl.trans(u), ROUNDED)
        to_q += product(do, tl.trans(s), ROUNDED)
        to_end += product(u, tl.trans(ds), ROUNDED)
        to_last += tl.sum(s * ds, 1)
        if DELTA:
            scaled = tl.load(d_scaled + at_v)
            to_inner -= product(scaled, tl.trans(u), ROUNDED)
            to_erase -= product(tl.load(d_v + at_v), tl.trans(s), ROUNDED)
            to_beta += tl.sum(scaled * tl.load(residual + at_v), 1)
    log = load_gate(gate + chunk * C * WIDTH, rows, channels, WIDTH)
    if WIDTH == 1:
        last = tl.load(gate + chunk * C + C - 1)
    else:
        last = tl.load(gate + chunk * C * K + (C - 1) * K + channels)[None, :]
    tl.store(d_read + at_k, scale * power(log) * to_q)
    tl.store(d_end + at_k, power(last - log) * to_end)
    tl.store(d_last + chunk * K + channels, to_last)
    to_weights = tl.where(rows[:, None] >= rows[None, :], to_weights, 0.0)
    to_inner = tl.where(rows[:, None] > rows[None, :], to_inner, 0.0)
    log_x = log
    if DELTA:
        rate = tl.load(beta + chunk * C + rows)
        if part == 0:
            to_beta += tl.sum(to_inner * tl.load(inner + at_c), 1)
            tl.store(d_beta + chunk * C + rows, to_beta)
        to_inner = rate[:, None] * to_inner
        log_x = load_gate(log_erase + chunk * C * WIDTH, rows, channels, WIDTH)
        tl.store(d_erased + at_k, power(log_x) * to_erase)
    if WIDTH == 1:
        if part == 0:
            # The weights have the scale and the decay already.
            found = _between(to_weights * tl.load(weights + at_c), False, C)
            if DELTA:
                found += _between(to_inner * tl.load(inner + at_c), EXCLUSIVE, C)
            tl.store(between + chunk * C + rows, found)
        key = tl.load(k + at_k)
        gap = tl.where(rows[:, None] >= rows[None, :], log - tl.trans(log), -float("inf"))
        to_weights = scale * to_weights * power(gap)
        tl.store(d_q + at_k, product(to_weights, key, ROUNDED))
        to_k = product(tl.trans(to_weights), tl.load(q + at_k), ROUNDED)
        if DELTA:
            gap = tl.where(rows[:, None] > rows[None, :], log_x - tl.trans(log), -float("inf"))
            to_inner = to_inner * power(gap)
            tl.store(d_erase + at_k, product(to_inner, key, ROUNDED))
            to_k += product(tl.trans(to_inner), tl.load(erase + at_k), ROUNDED)
        tl.store(d_k + at_k, to_k)
    elif part == 0:
        tl.store(d_weights + at_c, scale * to_weights)
        if DELTA:
            tl.store(d_inner + at_c, to_inner)
