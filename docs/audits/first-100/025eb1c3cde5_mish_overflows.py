"""level2_87, convolution and Mish: tanh(softplus(x)) is written with the square of 1 + exp(x), which
overflows from x = 44.4 on: infinity over infinity."""

import torch

x = torch.tensor([65.3])
truth = torch.nn.functional.mish(x)
square = (1 + x.exp()) ** 2
kernel = x * (square - 1) / (square + 1)
assert torch.allclose(truth, x)
assert kernel.isnan().all()
