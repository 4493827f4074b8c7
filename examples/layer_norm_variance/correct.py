"""The variance is the mean square of what is left after the mean is taken away."""

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def norm_kernel(x_ptr, scale_ptr, shift_ptr, out_ptr, columns, eps, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    offsets = tl.arange(0, BLOCK)
    mask = offsets < columns
    x = tl.load(x_ptr + row * columns + offsets, mask=mask, other=0.0)
    mean = tl.sum(x, axis=0) / columns
    centred = tl.where(mask, x - mean, 0.0)
    variance = tl.sum(centred * centred, axis=0) / columns
    scale = tl.load(scale_ptr + offsets, mask=mask, other=0.0)
    shift = tl.load(shift_ptr + offsets, mask=mask, other=0.0)
    y = centred / tl.sqrt(variance + eps) * scale + shift
    tl.store(out_ptr + row * columns + offsets, y, mask=mask)


class ModelNew(nn.Module):
    def __init__(self, columns):
        super().__init__()
        self.norm = nn.LayerNorm(columns)

    def forward(self, x):
        x = x.contiguous()
        out = torch.empty_like(x)
        rows, columns = x.shape
        if x.numel():
            scale, shift = self.norm.weight, self.norm.bias
            block = triton.next_power_of_2(columns)
            norm_kernel[(rows,)](x, scale, shift, out, columns, self.norm.eps, BLOCK=block)
        return out
