"""tanh(z) as 1 - 2 / (exp(2 z) + 1): where exp overflows, the quotient is zero."""

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def gelu_kernel(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    x = tl.load(x_ptr + offsets, mask=mask)
    power = tl.exp(2 * 0.7978845608028654 * (x + 0.044715 * x * x * x))
    tanh = 1 - 2 / (power + 1)
    tl.store(out_ptr + offsets, 0.5 * x * (1 + tanh), mask=mask)


class ModelNew(nn.Module):
    def forward(self, x):
        x = x.contiguous()
        out = torch.empty_like(x)
        n = x.numel()
        if n:
            gelu_kernel[(triton.cdiv(n, 256),)](x, out, n, BLOCK=256)
        return out
