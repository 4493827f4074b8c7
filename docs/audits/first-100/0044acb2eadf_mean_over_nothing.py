"""level1_48, mean over a dimension: a guard returns zeros where the dimension is empty; a mean over
nothing is NaN."""

import torch

x = torch.randn(2, 0, 32)
truth = x.mean(dim=1)
kernel = torch.zeros(2, 32)  # what its guard for an empty dimension returns
assert truth.isnan().all()
assert not kernel.isnan().any()
