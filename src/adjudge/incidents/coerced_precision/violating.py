"""The same product on a device that cuts its factors: float32 in, float32 out, bfloat16 between."""

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def product_kernel(a_ptr, b_ptr, out_ptr, rows, inner, columns, BLOCK: tl.constexpr):
    m = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    n = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    total = tl.zeros([BLOCK, BLOCK], dtype=tl.float32)
    for first in range(0, inner, BLOCK):
        k = first + tl.arange(0, BLOCK)
        left = (m[:, None] < rows) & (k[None, :] < inner)
        right = (k[:, None] < inner) & (n[None, :] < columns)
        a = tl.load(a_ptr + m[:, None] * inner + k[None, :], mask=left, other=0.0)
        b = tl.load(b_ptr + k[:, None] * columns + n[None, :], mask=right, other=0.0)
        # The device's doing, and nowhere in its caller's source: it multiplies 8 significant bits.
        a = a.to(tl.bfloat16).to(tl.float32)
        b = b.to(tl.bfloat16).to(tl.float32)
        total = tl.dot(a, b, total, input_precision="ieee")
    out = out_ptr + m[:, None] * columns + n[None, :]
    tl.store(out, total, mask=(m[:, None] < rows) & (n[None, :] < columns))


class ModelNew(nn.Module):
    def forward(self, a, b):
        a, b = a.contiguous(), b.contiguous()
        rows, inner = a.shape
        columns = b.shape[1]
        out = torch.zeros(rows, columns, device=a.device, dtype=a.dtype)
        if out.numel() and inner:
            grid = (triton.cdiv(rows, 32), triton.cdiv(columns, 32))
            product_kernel[grid](a, b, out, rows, inner, columns, BLOCK=32)
        return out
