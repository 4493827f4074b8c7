"""Column maxima, each row read, compared and written back by its own program: updates get lost."""

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
    x = tl.load(x_ptr + tl.program_id(1) * columns + offsets, mask=mask, other=float("-inf"))
    best = tl.load(out_ptr + offsets, mask=mask, other=float("-inf"))
    tl.store(out_ptr + offsets, larger(best, x), mask=mask)


class ModelNew(nn.Module):
    def forward(self, x):
        x = x.contiguous()
        rows, columns = x.shape
        out = torch.full((columns,), float("-inf"), device=x.device, dtype=x.dtype)
        if x.numel():
            max_kernel[(triton.cdiv(columns, 64), rows)](x, out, rows, columns, BLOCK=64)
        return out
