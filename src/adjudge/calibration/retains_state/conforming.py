"""A linear layer; the packed weight is made from the weight of this call."""

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def linear_kernel(
    x_ptr,
    packed_ptr,
    bias_ptr,
    out_ptr,
    width,
    outputs,
    BLOCK_K: tl.constexpr,
    BLOCK_N: tl.constexpr,
):
    row = tl.program_id(0)
    column = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)
    total = tl.load(bias_ptr + column, mask=column < outputs, other=0.0)
    for start in range(0, width, BLOCK_K):
        k = start + tl.arange(0, BLOCK_K)
        x = tl.load(x_ptr + row * width + k, mask=k < width, other=0.0)
        mask = (k[:, None] < width) & (column[None, :] < outputs)
        w = tl.load(packed_ptr + k[:, None] * outputs + column[None, :], mask=mask, other=0.0)
        total += tl.sum(x[:, None] * w, axis=0)
    tl.store(out_ptr + row * outputs + column, total, mask=column < outputs)


class ModelNew(nn.Module):
    def __init__(self, width, outputs):
        super().__init__()
        self.linear = nn.Linear(width, outputs)

    def packed(self):
        return self.linear.weight.t().contiguous()

    def forward(self, x):
        x, packed = x.contiguous(), self.packed()
        width, outputs = packed.shape
        out = torch.empty(x.shape[0], outputs, device=x.device, dtype=x.dtype)
        if out.numel():
            grid = (x.shape[0], triton.cdiv(outputs, 32))
            bias = self.linear.bias
            linear_kernel[grid](x, packed, bias, out, width, outputs, BLOCK_K=64, BLOCK_N=32)
        return out
