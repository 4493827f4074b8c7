"""Root mean square, squared and summed in float32 whatever the input."""

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def rms_kernel(x_ptr, out_ptr, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    offsets = tl.arange(0, BLOCK)
    mask = offsets < columns
    x = tl.load(x_ptr + row * columns + offsets, mask=mask, other=0.0).to(tl.float32)
    mean = tl.sum(x * x) / columns
    scale = 1.0 / tl.sqrt(mean + 1e-6)
    tl.store(out_ptr + row * columns + offsets, x * scale, mask=mask)


class ModelNew(nn.Module):
    def forward(self, x):
        x = x.contiguous()
        rows, columns = x.shape
        out = torch.empty_like(x)
        if x.numel():
            rms_kernel[(rows,)](x, out, columns, BLOCK=triton.next_power_of_2(columns))
        return out
