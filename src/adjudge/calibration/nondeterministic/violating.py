"""Column sums by atomic additions: the rows arrive in whatever order they finish."""

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def sum_kernel(x_ptr, out_ptr, rows, columns, BLOCK: tl.constexpr):
    row = tl.program_id(1)
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < columns
    x = tl.load(x_ptr + row * columns + offsets, mask=mask, other=0.0)
    tl.atomic_add(out_ptr + offsets, x, mask=mask)


class ModelNew(nn.Module):
    def forward(self, x):
        x = x.contiguous()
        rows, columns = x.shape
        out = torch.zeros(columns, device=x.device, dtype=x.dtype)
        if x.numel():
            sum_kernel[(triton.cdiv(columns, 64), rows)](x, out, rows, columns, BLOCK=64)
        return out
