"""level2_38, transposed convolution, pooling, clamp, softmax: the clamp is tl.minimum(tl.maximum(x)),
which turns NaN into the lower bound; an infinity met by weights of both signs averages to NaN."""

import torch

x = torch.tensor([float("inf"), float("-inf")]).mean()
truth = torch.clamp(torch.stack([x, torch.tensor(0.5)]), 0.0, 1.0).softmax(0) * 2
low, high = torch.tensor(0.0), torch.tensor(1.0)
clamped = torch.fmin(torch.fmax(torch.stack([x, torch.tensor(0.5)]), low), high)
kernel = clamped.softmax(0) * 2
assert truth.isnan().all()
assert kernel.isfinite().all()
