"""Products of pairs of tokens in a chunk, `Σ_K x_i y_j exp(log_x_i - log_y_j)`, and their gradients.

With a gate a channel the exponent has to stand inside the sum. Rows are taken 16 at a time: against
the columns before them through a base, the gate just before the first row, so that both powers are at
most one; against themselves without the matrix units, a column at a time.
"""

from __future__ import annotations

import triton
import triton.language as tl

from gated_recurrence.portable.kernels.products import load_gate, power, product, tile


@triton.jit
def whole(x, y, log_x, log_y, keep, ROUNDED: tl.constexpr):
    """The pairs of a whole chunk with a scalar gate: `[C, C]`, zero where not `keep`."""
    gap = tl.where(keep, log_x - tl.trans(log_y), -float("inf"))
    return product(x, tl.trans(y), ROUNDED) * power(gap)


@triton.jit
def _strip(
    x_base, y_base, log_x_base, log_y_base, out_base, number,
    factor, STRICT: tl.constexpr, C: tl.constexpr, K: tl.constexpr, SUB: tl.constexpr,
    ROUNDED: tl.constexpr,
):  # fmt: skip
    """Sixteen rows of the pairs with a gate a channel."""
    inside = tl.arange(0, SUB)
    channels = tl.arange(0, K)
    rows = number * SUB + inside
    x = tl.load(tile(x_base, rows, channels, K))
    log_x = tl.load(tile(log_x_base, rows, channels, K))
    block = tl.zeros((SUB, SUB), tl.float32)
    for j in range(SUB):
        column = number * SUB + j
        y = tl.load(y_base + column * K + channels)
        gap = log_x - tl.load(log_y_base + column * K + channels)[None, :]
        keep = (inside > j) if STRICT else (inside >= j)
        decay = power(tl.where(keep[:, None], gap, -float("inf")))
        found = tl.sum(x * y[None, :] * decay, 1)
        block = tl.where(inside[None, :] == j, found[:, None], block)
    tl.store(tile(out_base, rows, number * SUB + inside, C), factor * block)
    base = tl.load(log_y_base + (number * SUB - 1) * K + channels, mask=number > 0, other=0.0)
    left = x * power(log_x - base[None, :])
    for earlier in range(C // SUB):
        columns = earlier * SUB + inside
        if earlier < number:
            y = tl.load(tile(y_base, columns, channels, K))
            log_y = tl.load(tile(log_y_base, columns, channels, K))
            right = y * power(base[None, :] - log_y)
            block = factor * product(left, tl.trans(right), ROUNDED)
            tl.store(tile(out_base, rows, columns, C), block)
        elif earlier > number:
            tl.store(tile(out_base, rows, columns, C), tl.zeros((SUB, SUB), tl.float32))


@triton.jit
def weigh(
    q, k, erase, gate, log_erase, weights, inner, scale,
    DELTA: tl.constexpr, C: tl.constexpr, K: tl.constexpr, WIDTH: tl.constexpr,
    SUB: tl.constexpr, ROUNDED: tl.constexpr,
):  # fmt: skip
    """`weights = scale pairs(q, k)` with the diagonal and `inner = pairs(erase, k)` below it.

    Program `(chunk, strip)`; with a scalar gate the first strip is the whole chunk.
    """
    chunk = tl.program_id(0).to(tl.int64)
    tokens = chunk * C * K
    gates = chunk * C * WIDTH
    square = chunk * C * C
    if WIDTH == 1:
        rows = tl.arange(0, C)
        channels = tl.arange(0, K)
        key = tl.load(tile(k + tokens, rows, channels, K))
        log = load_gate(gate + gates, rows, channels, WIDTH)
        x = tl.load(tile(q + tokens, rows, channels, K))
        upto = rows[:, None] >= rows[None, :]
        found = whole(x, key, log, log, upto, ROUNDED)
        tl.store(tile(weights + square, rows, rows, C), scale * found)
        if DELTA:
            x = tl.load(tile(erase + tokens, rows, channels, K))
            log_x = load_gate(log_erase + gates, rows, channels, WIDTH)
            before = rows[:, None] > rows[None, :]
            found = whole(x, key, log_x, log, before, ROUNDED)
            tl.store(tile(inner + square, rows, rows, C), found)
    else:
        number = tl.program_id(1)
        _strip(
            q + tokens, k + tokens, gate + gates, gate + gates, weights + square, number,
            scale, False, C, K, SUB, ROUNDED,
        )  # fmt: skip
        if DELTA:
            _strip(
                erase + tokens, k + tokens, log_erase + gates, gate + gates, inner + square, number,
                1.0, True, C, K, SUB, ROUNDED,
            )  # fmt: skip


@triton.jit
def invert(inner, beta, inverse, C: tl.constexpr):
    """`(I + diag(β) inner)⁻¹ - I` by forward substitution, a row at a time.

    Without the identity, so that what a row has of its own is not rounded in a product with it.
    """
    chunk = tl.program_id(0).to(tl.int64)
    rows = tl.arange(0, C)
    at = tile(chunk * C * C, rows, rows, C)
    below = tl.load(beta + chunk * C + rows)[:, None] * tl.load(inner + at)
    identity = (rows[:, None] == rows[None, :]).to(tl.float32)
    found = identity
    for i in range(1, C):
        here = rows[:, None] == i
        coefficients = tl.sum(tl.where(here, below, 0.0), 0)
        row = tl.sum(coefficients[:, None] * found, 0)
        found -= tl.where(here, row[None, :], 0.0)
    tl.store(inverse + at, found - identity)


@triton.jit
def _back_inside(
    grad_base, x_base, y_base, log_x_base, log_y_base, number, STRICT: tl.constexpr,
    EXCLUSIVE: tl.constexpr, C: tl.constexpr, K: tl.constexpr, SUB: tl.constexpr,
):  # fmt: skip
    """Gradients of sixteen rows against themselves, with a gate a channel: of x, of y, and of the log
    decays, each the sum over the pairs that it lies between."""
    inside = tl.arange(0, SUB)
    channels = tl.arange(0, K)
    rows = number * SUB + inside
    x = tl.load(tile(x_base, rows, channels, K))
    log_x = tl.load(tile(log_x_base, rows, channels, K))
    to_x = tl.zeros((SUB, K), tl.float32)
    to_y = tl.zeros((SUB, K), tl.float32)
    to_gate = tl.zeros((SUB, K), tl.float32)
    earlier = tl.zeros((SUB, K), tl.float32)
    for j in range(SUB):
        column = number * SUB + j
        y = tl.load(y_base + column * K + channels)[None, :]
        gap = log_x - tl.load(log_y_base + column * K + channels)[None, :]
        keep = (inside > j) if STRICT else (inside >= j)
        decay = power(tl.where(keep[:, None], gap, -float("inf")))
        pull = tl.load(grad_base + rows * C + column)[:, None] * decay
        to_x += pull * y
        to_y = tl.where((inside == j)[:, None], tl.sum(pull * x, 0)[None, :], to_y)
        # The gate of the next token lies between this column, or one before it, and the rows from there.
        earlier += pull * x * y
        beyond = (inside > j + 1) if EXCLUSIVE else (inside > j)
        between = tl.sum(tl.where(beyond[:, None], earlier, 0.0), 0)
        to_gate = tl.where((inside == j + 1)[:, None], between[None, :], to_gate)
    return to_x, to_y, to_gate


@triton.jit
def _back_to_rows(
    grad_base, y_base, log_x_base, log_y_base, number,
    C: tl.constexpr, K: tl.constexpr, SUB: tl.constexpr, ROUNDED: tl.constexpr,
):  # fmt: skip
    """The gradient of sixteen rows x through the columns before them, with a gate a channel."""
    inside = tl.arange(0, SUB)
    channels = tl.arange(0, K)
    rows = number * SUB + inside
    log_x = tl.load(tile(log_x_base, rows, channels, K))
    base = tl.load(log_y_base + (number * SUB - 1) * K + channels, mask=number > 0, other=0.0)
    from_base = power(log_x - base[None, :])
    found = tl.zeros((SUB, K), tl.float32)
    for earlier in range(number):
        columns = earlier * SUB + inside
        block = tl.load(tile(grad_base, rows, columns, C))
        log_y = tl.load(tile(log_y_base, columns, channels, K))
        y = tl.load(tile(y_base, columns, channels, K)) * power(base[None, :] - log_y)
        found += from_base * product(block, y, ROUNDED)
    return found


@triton.jit
def _back_to_columns(
    grad_base, x_base, y_base, log_x_base, log_y_base, over_base, number, ADD: tl.constexpr,
    C: tl.constexpr, K: tl.constexpr, SUB: tl.constexpr, ROUNDED: tl.constexpr,
):  # fmt: skip
    """The gradient of sixteen columns y through the rows after them, with a gate a channel.

    What each later strip gives the log decays between is written to `over_base`, `[strips, K]`, or with
    ADD added to it.
    """
    inside = tl.arange(0, SUB)
    channels = tl.arange(0, K)
    columns = number * SUB + inside
    y = tl.load(tile(y_base, columns, channels, K))
    log_y = tl.load(tile(log_y_base, columns, channels, K))
    found = tl.zeros((SUB, K), tl.float32)
    for later in range(number + 1, C // SUB):
        rows = later * SUB + inside
        base = tl.load(log_y_base + (later * SUB - 1) * K + channels)
        block = tl.load(tile(grad_base, rows, columns, C))
        log_x = tl.load(tile(log_x_base, rows, channels, K))
        x = tl.load(tile(x_base, rows, channels, K)) * power(log_x - base[None, :])
        pull = power(base[None, :] - log_y) * product(tl.trans(block), x, ROUNDED)
        found += pull
        over = tl.sum(y * pull, 0)
        if ADD:
            over += tl.load(over_base + later * K + channels)
        tl.store(over_base + later * K + channels, over)
    return found


@triton.jit
def _back_of(
    grad, x_base, y_base, log_x, log_y, d_x_base, by_x_base, strips, number,
    DELTA: tl.constexpr, EXCLUSIVE: tl.constexpr, C: tl.constexpr, K: tl.constexpr,
    SUB: tl.constexpr, ROUNDED: tl.constexpr,
):  # fmt: skip
    """Stores the gradient of the rows of one kind of pairs, and their part in the log decays' across
    strips; gives those of the columns (all, and across strips), and of the log decays inside the strip.
    With DELTA, `over` of the columns is added to what another kind has left there."""
    rows = number * SUB + tl.arange(0, SUB)
    channels = tl.arange(0, K)
    x, y, to_gate = _back_inside(
        grad, x_base, y_base, log_x, log_y, number, DELTA, EXCLUSIVE, C, K, SUB
    )  # fmt: skip
    before = _back_to_rows(grad, y_base, log_x, log_y, number, C, K, SUB, ROUNDED)
    after = _back_to_columns(
        grad, x_base, y_base, log_x, log_y, strips, number, DELTA, C, K, SUB, ROUNDED
    )  # fmt: skip
    tl.store(tile(d_x_base, rows, channels, K), x + before)
    tl.store(tile(by_x_base, rows, channels, K), before * tl.load(tile(x_base, rows, channels, K)))
    return y + after, after, to_gate


@triton.jit
def weigh_backward(
    q, k, erase, gate, log_erase, d_weights, d_inner,
    d_q, d_k, d_erase, within, by_rows, by_erase, by_columns, over,
    DELTA: tl.constexpr, EXCLUSIVE: tl.constexpr, C: tl.constexpr, K: tl.constexpr,
    SUB: tl.constexpr, ROUNDED: tl.constexpr,
):  # fmt: skip
    """Gradients of `weigh` with a gate a channel. Program `(chunk, strip)`.

    What goes to the log decays: `within` from the pairs inside a strip. Of pairs of two strips, still to
    be summed over the rows from a token on, `by_rows` and `by_erase`; over the columns before a token,
    `by_columns`; and `over[column strip, row strip]` for every token of the strips in between.
    """
    chunk = tl.program_id(0).to(tl.int64)
    number = tl.program_id(1)
    inside = tl.arange(0, SUB)
    channels = tl.arange(0, K)
    rows = number * SUB + inside
    tokens = chunk * C * K
    square = chunk * C * C
    at = tile(tokens, rows, channels, K)
    strips = over + (chunk * (C // SUB) + number) * (C // SUB) * K
    log = gate + tokens
    to_k, after, to_gate = _back_of(
        d_weights + square, q + tokens, k + tokens, log, log, d_q + tokens, by_rows + tokens, strips,
        number, False, False, C, K, SUB, ROUNDED,
    )  # fmt: skip
    if DELTA:
        more, more_after, more_gate = _back_of(
            d_inner + square, erase + tokens, k + tokens, log_erase + tokens, log,
            d_erase + tokens, by_erase + tokens, strips,
            number, True, EXCLUSIVE, C, K, SUB, ROUNDED,
        )  # fmt: skip
        to_k += more
        after += more_after
        to_gate += more_gate
    tl.store(d_k + at, to_k)
    tl.store(within + at, to_gate)
    tl.store(by_columns + at, after * tl.load(k + at))
