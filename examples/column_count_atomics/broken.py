"""Atomic additions into memory that nobody has cleared."""

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def count_kernel(x_ptr, out_ptr, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    offsets = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < columns
    x = tl.load(x_ptr + row * columns + offsets, mask=mask, other=0.0)
    tl.atomic_add(out_ptr + offsets, tl.where(x > 0, 1.0, 0.0), mask=mask)


class ModelNew(nn.Module):
    def forward(self, x):
        x = x.contiguous()
        rows, columns = x.shape
        out = torch.empty(columns, device=x.device, dtype=torch.float32)
        if x.numel():
            count_kernel[(rows, triton.cdiv(columns, 64))](x, out, columns, BLOCK=64)
        return out
