"""Column sums, the running total carried from chunk to chunk in float16."""

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def sum_kernel(x_ptr, out_ptr, rows, columns, BLOCK: tl.constexpr, CHUNK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < columns
    total = tl.zeros([BLOCK], dtype=tl.float32)
    for first in range(0, rows, CHUNK):
        row = first + tl.arange(0, CHUNK)
        places = row[:, None] * columns + offsets[None, :]
        inside = (row[:, None] < rows) & mask[None, :]
        x = tl.load(x_ptr + places, mask=inside, other=0.0).to(tl.float32)
        total = total.to(tl.float16).to(tl.float32) + tl.sum(x, axis=0)
    tl.store(out_ptr + offsets, total, mask=mask)


class ModelNew(nn.Module):
    def forward(self, x):
        x = x.contiguous()
        rows, columns = x.shape
        out = torch.zeros(columns, device=x.device, dtype=x.dtype)
        if x.numel():
            grid = (triton.cdiv(columns, 64),)
            sum_kernel[grid](x, out, rows, columns, BLOCK=64, CHUNK=32)
        return out
