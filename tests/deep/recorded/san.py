import sys

import torch
import triton
import triton.language as tl


@triton.jit
def shifted(x, out, n, by, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    v = tl.load(x + i, i < n)
    tl.store(out + i + by, v, i < n)


which = sys.argv[1]
if which == "clean":
    x = torch.ones(1024, device="cuda")
    out = torch.zeros(1024, device="cuda")
    shifted[(1,)](x, out, 1024, 0, BLOCK=1024)
elif which == "store":
    x = torch.ones(1024, device="cuda")
    out = torch.zeros(1024, device="cuda")
    shifted[(1,)](x, out, 1024, 1, BLOCK=1024)
elif which == "load":
    x = torch.ones(1000, device="cuda")
    out = torch.zeros(1024, device="cuda")
    shifted[(1,)](x, out, 1024, 0, BLOCK=1024)
elif which == "uninit":
    x = torch.empty(1024, device="cuda")
    out = torch.zeros(1024, device="cuda")
    shifted[(1,)](x, out, 1024, 0, BLOCK=1024)
torch.cuda.synchronize()
