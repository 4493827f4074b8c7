"""The serial parts: the state through the chunks, and its gradient back through them.

Program `(sequence and head, columns of V)`: columns of the state do not see one another.
"""

from __future__ import annotations

import triton
import triton.language as tl

from gated_recurrence.portable.kernels.products import (
    load_gate,
    load_last,
    power,
    product,
    read,
    tile,
)


@triton.jit
def forward(
    q, k, v, erase, gate, log_erase, beta, weights, inverse,
    state, states, residual, update, out, final, chunks, scale,
    DELTA: tl.constexpr, C: tl.constexpr, K: tl.constexpr, V: tl.constexpr, BV: tl.constexpr,
    WIDTH: tl.constexpr, ROUNDED: tl.constexpr,
):  # fmt: skip
    """Output, final state, and for the backward pass the state before each chunk, residual, update."""
    head = tl.program_id(0).to(tl.int64)
    rows = tl.arange(0, C)
    channels = tl.arange(0, K)
    columns = tl.program_id(1) * BV + tl.arange(0, BV)
    s = tl.load(tile(state + head * K * V, channels, columns, V))
    for number in range(chunks):
        chunk = head * chunks + number
        tl.store(tile(states + chunk * K * V, channels, columns, V), s)
        at_k = tile(chunk * C * K, rows, channels, K)
        at_v = tile(chunk * C * V, rows, columns, V)
        at_c = tile(chunk * C * C, rows, rows, C)
        gates = gate + chunk * C * WIDTH
        log = load_gate(gates, rows, channels, WIDTH)
        last = load_last(gates, channels, C, WIDTH)
        u = tl.load(v + at_v)
        if DELTA:
            log_x = load_gate(log_erase + chunk * C * WIDTH, rows, channels, WIDTH)
            u -= read(tl.load(erase + at_k), log_x, s, WIDTH, ROUNDED)
            tl.store(residual + at_v, u)
            u = tl.load(beta + chunk * C + rows)[:, None] * u
            u += product(tl.load(inverse + at_c), u, ROUNDED)
            tl.store(update + at_v, u)
        found = scale * read(tl.load(q + at_k), log, s, WIDTH, ROUNDED)
        found += product(tl.load(weights + at_c), u, ROUNDED)
        tl.store(out + at_v, found)
        k_end = power(tl.trans(last) - log) * tl.load(k + at_k)
        s = power(last) * s + product(tl.trans(k_end), u, ROUNDED)
    tl.store(tile(final + head * K * V, channels, columns, V), s)


@triton.jit
def reverse(
    q, k, erase, gate, log_erase, beta, weights, inverse, d_out,
    d_state, d_states, d_scaled, d_v, d_first, chunks, scale,
    DELTA: tl.constexpr, C: tl.constexpr, K: tl.constexpr, V: tl.constexpr, BV: tl.constexpr,
    WIDTH: tl.constexpr, ROUNDED: tl.constexpr,
):  # fmt: skip
    """The gradient of the state after each chunk, of the scaled residual, of v, of the first state."""
    head = tl.program_id(0).to(tl.int64)
    rows = tl.arange(0, C)
    channels = tl.arange(0, K)
    columns = tl.program_id(1) * BV + tl.arange(0, BV)
    ds = tl.load(tile(d_state + head * K * V, channels, columns, V))
    for done in range(chunks):
        chunk = head * chunks + chunks - 1 - done
        tl.store(tile(d_states + chunk * K * V, channels, columns, V), ds)
        at_k = tile(chunk * C * K, rows, channels, K)
        at_v = tile(chunk * C * V, rows, columns, V)
        at_c = tile(chunk * C * C, rows, rows, C)
        gates = gate + chunk * C * WIDTH
        log = load_gate(gates, rows, channels, WIDTH)
        last = load_last(gates, channels, C, WIDTH)
        do = tl.load(d_out + at_v)
        k_end = power(tl.trans(last) - log) * tl.load(k + at_k)
        du = product(tl.trans(tl.load(weights + at_c)), do, ROUNDED) + product(k_end, ds, ROUNDED)
        ds = power(last) * ds
        ds += product(tl.trans(scale * power(log) * tl.load(q + at_k)), do, ROUNDED)
        if DELTA:
            du += product(tl.trans(tl.load(inverse + at_c)), du, ROUNDED)
            tl.store(d_scaled + at_v, du)
            du = tl.load(beta + chunk * C + rows)[:, None] * du
            log_x = load_gate(log_erase + chunk * C * WIDTH, rows, channels, WIDTH)
            ds -= product(tl.trans(power(log_x) * tl.load(erase + at_k)), du, ROUNDED)
        tl.store(d_v + at_v, du)
    tl.store(tile(d_first + head * K * V, channels, columns, V), ds)
