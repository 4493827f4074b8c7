"""level2_86, linear layer, division, GELU: the product asks for tf32 (allow_tf32=True), which keeps 10
bits of the operands' fractions, where torch's linear layer keeps 23 by default."""

import torch


def tf32(x: torch.Tensor) -> torch.Tensor:
    bits = x.view(torch.int32)
    return ((bits + 0xFFF + ((bits >> 13) & 1)) & ~0x1FFF).view(torch.float32)


torch.manual_seed(0)
x, weight = torch.randn(4, 64), torch.randn(256, 64) / 8
truth = x.double() @ weight.double().t()
honest = (x @ weight.t() - truth).pow(2).mean().sqrt()
kernel = (tf32(x) @ tf32(weight).t() - truth).pow(2).mean().sqrt()
assert kernel > 500 * honest
