"""The positive part, by a kernel at whole blocks and by torch elsewhere."""

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def relu_kernel(x_ptr, out_ptr, count, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < count
    x = tl.load(x_ptr + offsets, mask=mask, other=0.0)
    tl.store(out_ptr + offsets, tl.where(x <= 0.0, 0.0, x), mask=mask)


class ModelNew(nn.Module):
    def forward(self, x):
        if x.numel() % 256:
            return torch.relu(x)
        x = x.contiguous()
        out = torch.empty_like(x)
        if x.numel():
            relu_kernel[(triton.cdiv(x.numel(), 256),)](x, out, x.numel(), BLOCK=256)
        return out
