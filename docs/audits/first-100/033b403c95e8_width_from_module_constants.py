"""level2_37, linear layer and Swish: the kernel is given the file's own constants in_features = 512 and
out_features = 1024 in place of the sizes at hand. At any other width it reads past rows of x and
strides through the output at the wrong pitch."""

import torch

in_features = 512
x = torch.randn(2, 64)
weight = torch.randn(8, 64)
truth = torch.nn.functional.silu(x @ weight.t())
row, flat = 0, x.reshape(-1)
offsets = row * x.stride(0) + torch.arange(in_features) * x.stride(1)
assert offsets.max() >= flat.numel()  # past the end of x
kernel_terms = flat[offsets[offsets < flat.numel()]]
assert kernel_terms.numel() > x.shape[1]  # the next row is part of the sum
