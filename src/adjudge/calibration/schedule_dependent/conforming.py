"""Column maxima, one program for each block of columns."""

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def larger(a, b):
    return tl.maximum(a, b, propagate_nan=tl.PropagateNan.ALL)


@triton.jit
def max_kernel(x_ptr, out_ptr, rows, columns, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < columns
    best = tl.full([BLOCK], float("-inf"), tl.float32)
    for row in range(rows):
        x = tl.load(x_ptr + row * columns + offsets, mask=mask, other=float("-inf"))
        best = larger(best, x)
    tl.store(out_ptr + offsets, best, mask=mask)


class ModelNew(nn.Module):
    def forward(self, x):
        x = x.contiguous()
        rows, columns = x.shape
        out = torch.full((columns,), float("-inf"), device=x.device, dtype=x.dtype)
        if x.numel():
            max_kernel[(triton.cdiv(columns, 64),)](x, out, rows, columns, BLOCK=64)
        return out
