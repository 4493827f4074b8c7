"""level2_1, convolution, ReLU, bias: ReLU is written as a choice by x > 0, which is false for NaN."""

import torch

x = torch.tensor([float("inf") - float("inf"), 1.0])
bias = torch.tensor([-1.38])
truth = torch.relu(x) + bias
kernel = torch.where(x > 0, x, 0.0) + bias
assert truth[0].isnan()
assert kernel[0] == bias
