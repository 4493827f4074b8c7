"""Row norms in one pass."""

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def norm_kernel(x_ptr, out_ptr, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    offsets = tl.arange(0, BLOCK)
    mask = offsets < columns
    x = tl.load(x_ptr + row * columns + offsets, mask=mask, other=0.0)
    squares = x * x
    tl.store(out_ptr + row, tl.sqrt(tl.sum(squares, axis=0)))


class ModelNew(nn.Module):
    def forward(self, x):
        x = x.contiguous()
        rows, columns = x.shape
        out = torch.empty(rows, device=x.device, dtype=x.dtype)
        if rows:
            block = triton.next_power_of_2(max(columns, 1))
            norm_kernel[(rows,)](x, out, columns, BLOCK=block)
        return out
