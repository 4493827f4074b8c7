"""Column sums, the rows in one fixed order."""

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def sum_kernel(x_ptr, out_ptr, rows, columns, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < columns
    total = tl.zeros([BLOCK], dtype=tl.float32)
    for row in range(rows):
        total += tl.load(x_ptr + row * columns + offsets, mask=mask, other=0.0)
    tl.store(out_ptr + offsets, total, mask=mask)


class ModelNew(nn.Module):
    def forward(self, x):
        x = x.contiguous()
        rows, columns = x.shape
        out = torch.empty(columns, device=x.device, dtype=x.dtype)
        if columns:
            sum_kernel[(triton.cdiv(columns, 64),)](x, out, rows, columns, BLOCK=64)
        return out
