"""Half of each value; what is too small for a normal float16 becomes zero."""

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def half_kernel(x_ptr, out_ptr, count, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < count
    y = tl.load(x_ptr + offsets, mask=mask, other=0.0).to(tl.float32) * 0.5
    y = tl.where(tl.abs(y) < 0.00006103515625, y * 0.0, y)
    tl.store(out_ptr + offsets, y, mask=mask)


class ModelNew(nn.Module):
    def forward(self, x):
        x = x.contiguous()
        out = torch.empty_like(x)
        if x.numel():
            half_kernel[(triton.cdiv(x.numel(), 256),)](x, out, x.numel(), BLOCK=256)
        return out
