"""level1_28, hardsigmoid: the clamp is tl.minimum(tl.maximum(y)), which turns NaN into 0."""

import torch

x = torch.tensor(float("nan"))
truth = torch.nn.functional.hardsigmoid(x)
kernel = torch.fmin(torch.fmax(x / 6 + 0.5, torch.tensor(0.0)), torch.tensor(1.0))
assert truth.isnan()
assert kernel == 0
