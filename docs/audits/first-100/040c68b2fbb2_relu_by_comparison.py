"""level1_19, ReLU: written as a choice by x >= 0, which is false for NaN."""

import torch

x = torch.tensor(float("nan"))
assert torch.relu(x).isnan()
assert torch.where(x >= 0, x, 0.0) == 0
