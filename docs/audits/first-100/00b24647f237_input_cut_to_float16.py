"""level1_63, convolution: input and weight are cast to float16, whose largest value is 65504."""

import torch

x = torch.full((1, 1, 3, 3), 1e35)
weight = torch.full((1, 1, 3, 3), 0.1)
truth = torch.nn.functional.conv2d(x, weight)
kernel = torch.nn.functional.conv2d(x.half().float(), weight.half().float())
assert truth.isfinite().all()
assert kernel.isinf().all()
