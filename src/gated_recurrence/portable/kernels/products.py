"""What the Triton kernels share: the product with its rounding, and the tiles of a chunk.

Every tensor is float32, contiguous and padded with zeroes to whole chunks and tiles, which write
nothing and decay nothing; but `gate`, the inclusive cumulative log decay of a chunk, one number a token
(`WIDTH` 1) or one a channel (`WIDTH` K), is float64: its differences keep weak gates beside strong ones.
Sizes that the compiler knows are in capitals: C tokens a chunk, K and V channels.
"""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def product(x, y, ROUNDED: tl.constexpr):
    """`x @ y`, accumulated in float32; with ROUNDED the operands are rounded to bfloat16."""
    if ROUNDED:
        found = tl.dot(x.to(tl.bfloat16), y.to(tl.bfloat16), out_dtype=tl.float32)
    else:
        found = tl.dot(x, y, input_precision="ieee", out_dtype=tl.float32)
    return found


@triton.jit
def tile(base, rows, columns, STRIDE: tl.constexpr):
    """Where the elements of a row-major matrix with rows of STRIDE lie."""
    return base + rows[:, None] * STRIDE + columns[None, :]


@triton.jit
def load_gate(base, rows, columns, WIDTH: tl.constexpr):
    """`[R, 1]` with a scalar gate, else `[R, columns]`."""
    if WIDTH == 1:
        gate = tl.load(base + rows)[:, None]
    else:
        gate = tl.load(tile(base, rows, columns, WIDTH))
    return gate


@triton.jit
def load_last(base, columns, C: tl.constexpr, WIDTH: tl.constexpr):
    """The gate of the chunk's last token, down the rows of a state: `[1, 1]` or `[columns, 1]`."""
    if WIDTH == 1:
        gate = tl.load(base + C - 1 + tl.zeros((1, 1), tl.int32))
    else:
        gate = tl.load(base + (C - 1) * WIDTH + columns)[:, None]
    return gate


@triton.jit
def power(log):
    """`exp(log)` of a difference of gates, in float32."""
    return tl.exp(log.to(tl.float32))


@triton.jit
def read(x, gate, state, WIDTH: tl.constexpr, ROUNDED: tl.constexpr):
    """`diag(exp gate) x S`; a scalar decay is applied after the product, outside its rounding."""
    if WIDTH == 1:
        found = power(gate) * product(x, state, ROUNDED)
    else:
        found = product(power(gate) * x, state, ROUNDED)
    return found
