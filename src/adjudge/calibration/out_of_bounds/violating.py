"""Doubling; the load is not masked, so the last block reads past the end of the input."""

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def double_kernel(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    x = tl.load(x_ptr + offsets)
    tl.store(out_ptr + offsets, 2 * x, mask=mask)


class ModelNew(nn.Module):
    def forward(self, x):
        x = x.contiguous()
        out = torch.empty_like(x)
        n = x.numel()
        if n:
            double_kernel[(triton.cdiv(n, 1024),)](x, out, n, BLOCK=1024)
        return out
