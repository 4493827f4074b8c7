"""level2_56, linear layer, sigmoid, sum: row number times row stride is a product of 32-bit integers,
and wraps where a view's rows lie far apart."""

import torch

stride = 2**30
row = torch.tensor(3, dtype=torch.int32)
truth = 3 * stride
kernel = row * torch.tensor(stride, dtype=torch.int32)
assert truth > 2**31
assert int(kernel) != truth
assert int(kernel) < 0
