"""level1_53, minimum over a dimension: tl.min and tl.minimum answer the number where torch answers
NaN."""

import torch

x = torch.tensor([float("nan"), 0.128, 0.5])
truth = torch.min(x)
kernel = torch.fmin(torch.fmin(x[0], x[1]), x[2])
assert truth.isnan()
assert kernel == x[1]
