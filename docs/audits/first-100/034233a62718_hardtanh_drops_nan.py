"""level2_95, linear layer, Swish, tanh, GELU, hardtanh: hardtanh is tl.minimum(tl.maximum(x)), which
turns NaN into -1."""

import torch

x = torch.tensor(float("nan"))
truth = torch.nn.functional.hardtanh(x)
kernel = torch.fmin(torch.fmax(x, torch.tensor(-1.0)), torch.tensor(1.0))
assert truth.isnan()
assert kernel == -1
