"""Masked mean; a row without a marked element is left as the memory was."""

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def mean_kernel(x_ptr, marked_ptr, out_ptr, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    offsets = tl.arange(0, BLOCK)
    mask = offsets < columns
    marked = tl.load(marked_ptr + row * columns + offsets, mask=mask, other=0) != 0
    x = tl.load(x_ptr + row * columns + offsets, mask=mask, other=0.0).to(tl.float32)
    count = tl.sum(marked.to(tl.int32), axis=0)
    total = tl.sum(tl.where(marked, x, 0.0), axis=0)
    if count > 0:
        tl.store(out_ptr + row, total / count)


class ModelNew(nn.Module):
    def forward(self, x, marked):
        x, marked = x.contiguous(), marked.contiguous()
        rows, columns = x.shape
        out = torch.empty(rows, device=x.device, dtype=x.dtype)
        if rows:
            block = triton.next_power_of_2(max(columns, 1))
            mean_kernel[(rows,)](x, marked, out, columns, BLOCK=block)
        return out
