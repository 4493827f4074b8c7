"""Rows over their largest size, which has a floor far below ordinary rows."""

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def normalize_kernel(x_ptr, out_ptr, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    offsets = tl.arange(0, BLOCK)
    mask = offsets < columns
    x = tl.load(x_ptr + row * columns + offsets, mask=mask, other=0.0).to(tl.float32)
    largest = tl.max(tl.abs(x))
    # tl.max passes over NaN, the reference does not.
    largest = tl.where(tl.max((x != x).to(tl.int32)) > 0, float("nan"), largest)
    floor = tl.where(largest < 1e-12, 1e-12, largest)
    tl.store(out_ptr + row * columns + offsets, x / floor, mask=mask)


class ModelNew(nn.Module):
    def forward(self, x):
        x = x.contiguous()
        rows, columns = x.shape
        out = torch.empty_like(x)
        if x.numel():
            normalize_kernel[(rows,)](x, out, columns, BLOCK=triton.next_power_of_2(columns))
        return out
