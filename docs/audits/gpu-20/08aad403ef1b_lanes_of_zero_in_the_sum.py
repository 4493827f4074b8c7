"""level1_23, softmax: lanes past the row are loaded as 0 and their exponentials are summed. 2048 divides
the native 16384, so nothing shows there."""

import torch

torch.manual_seed(0)
BLOCK = 2048


def kernel(x: torch.Tensor) -> torch.Tensor:
    padded = torch.nn.functional.pad(x, (0, -len(x) % BLOCK))
    return (x - x.max()).exp() / (padded - x.max()).exp().sum()


x = torch.randn(64)
assert not torch.allclose(kernel(x), torch.softmax(x, 0), rtol=0.1)
whole = torch.randn(16384)
assert torch.allclose(kernel(whole), torch.softmax(whole, 0))
