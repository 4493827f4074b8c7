"""Twice each value; the scratch memory of every call is kept."""

import torch
import torch.nn as nn
import triton
import triton.language as tl

BUFFERS = []


@triton.jit
def double_kernel(x_ptr, scratch_ptr, out_ptr, count, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < count
    x = tl.load(x_ptr + offsets, mask=mask, other=0.0)
    tl.store(scratch_ptr + offsets, x, mask=mask)
    tl.store(out_ptr + offsets, x * 2.0, mask=mask)


class ModelNew(nn.Module):
    def forward(self, x):
        x = x.contiguous()
        out, scratch = torch.empty_like(x), torch.empty_like(x)
        BUFFERS.append(scratch)
        if x.numel():
            grid = (triton.cdiv(x.numel(), 256),)
            double_kernel[grid](x, scratch, out, x.numel(), BLOCK=256)
        return out
