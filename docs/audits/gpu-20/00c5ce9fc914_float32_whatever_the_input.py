"""level1_98, Kullback-Leibler divergence: the rows' sums are kept in a float32 tensor, whose mean is
returned; from float16 inputs the reference returns float16."""

import torch

p = torch.rand(2, 16).softmax(-1).half()
wanted = torch.nn.functional.kl_div(torch.log(p), p, reduction="batchmean")
assert wanted.dtype is torch.float16
assert torch.empty(2, dtype=torch.float32).mean().dtype is torch.float32
