"""float8 operands and answer, rounded to nearest even."""

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def product(
    a_ptr,
    b_ptr,
    sa_ptr,
    sb_ptr,
    so_ptr,
    out_ptr,
    M,
    N,
    K,
    BM: tl.constexpr,
    BN: tl.constexpr,
    BK: tl.constexpr,
):
    i = tl.program_id(0) * BM + tl.arange(0, BM)
    j = tl.program_id(1) * BN + tl.arange(0, BN)
    total = tl.zeros([BM, BN], tl.float32)
    for start in range(0, K, BK):
        k = start + tl.arange(0, BK)
        a = tl.load(
            a_ptr + i[:, None] * K + k[None, :], mask=(i[:, None] < M) & (k[None, :] < K), other=0.0
        )
        b = tl.load(
            b_ptr + k[:, None] * N + j[None, :], mask=(k[:, None] < K) & (j[None, :] < N), other=0.0
        )
        total += tl.dot(a.to(tl.float32), b.to(tl.float32), input_precision="ieee")
    y = total * (tl.load(sa_ptr) * tl.load(sb_ptr)) / tl.load(so_ptr)
    y = tl.clamp(y, -448.0, 448.0, propagate_nan=tl.PropagateNan.ALL)
    y = y.to(tl.float8e4nv)
    tl.store(out_ptr + i[:, None] * N + j[None, :], y, mask=(i[:, None] < M) & (j[None, :] < N))


class ModelNew(nn.Module):
    def forward(self, a, b, a_scale, b_scale, out_scale):
        a, b = a.contiguous(), b.contiguous()
        (m, k), n = a.shape, b.shape[1]
        out = torch.zeros(m, n, device=a.device).to(torch.float8_e4m3fn)
        if out.numel():
            grid = (triton.cdiv(m, 16), triton.cdiv(n, 16))
            product[grid](a, b, a_scale, b_scale, out_scale, out, m, n, k, BM=16, BN=16, BK=32)
        return out
