"""Both strides of the input are taken from the tensor."""

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def norm_kernel(x_ptr, out_ptr, row_stride, column_stride, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    offsets = tl.arange(0, BLOCK)
    mask = offsets < columns
    x = tl.load(x_ptr + row * row_stride + offsets * column_stride, mask=mask, other=0.0)
    mean_square = tl.sum(x * x, axis=0) / columns
    y = x / tl.sqrt(mean_square + 1e-6)
    tl.store(out_ptr + row * columns + offsets, y, mask=mask)


class ModelNew(nn.Module):
    def forward(self, x):
        rows, columns = x.shape
        out = torch.empty(rows, columns, device=x.device, dtype=x.dtype)
        if x.numel():
            block = triton.next_power_of_2(columns)
            norm_kernel[(rows,)](x, out, x.stride(0), x.stride(1), columns, BLOCK=block)
        return out
