"""level3_3, a deep narrow network: the first linear kernel reads input + row * width + k, whatever the
strides of the input are. A slice of a wider tensor is read along its storage."""

import torch

storage = torch.randn(1, 8)
x = storage[:, ::2]
weight = torch.randn(3, 4)
truth = x @ weight.t()
read = torch.as_strided(x, (1, 4), (4, 1))  # consecutive addresses
kernel = read @ weight.t()
assert not torch.allclose(kernel, truth, atol=1e-2, rtol=1e-2)
