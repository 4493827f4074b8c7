"""The least index among the largest elements; a NaN counts as larger than everything."""

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def argmax_kernel(x_ptr, out_ptr, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    offsets = tl.arange(0, BLOCK)
    mask = offsets < columns
    x = tl.load(x_ptr + row * columns + offsets, mask=mask, other=float("-inf"))
    nans = tl.where(mask & (x != x), offsets, BLOCK)
    first_nan = tl.min(nans, axis=0)
    largest = tl.max(tl.where(x != x, float("-inf"), x), axis=0)
    ties = tl.where(mask & (x == largest), offsets, BLOCK)
    first = tl.min(ties, axis=0)
    tl.store(out_ptr + row, tl.where(first_nan < BLOCK, first_nan, first).to(tl.int64))


class ModelNew(nn.Module):
    def forward(self, x):
        x = x.contiguous()
        rows, columns = x.shape
        if not columns:
            raise ValueError("argmax of an empty row")
        out = torch.empty(rows, device=x.device, dtype=torch.int64)
        if rows:
            argmax_kernel[(rows,)](x, out, columns, BLOCK=triton.next_power_of_2(columns))
        return out
