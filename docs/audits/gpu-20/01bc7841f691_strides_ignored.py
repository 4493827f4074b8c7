"""L1/81, transposed convolution in CUDA C++: offsets are computed from the shape as if x were
contiguous, and x is never made so. An expanded x has fewer elements in memory than its shape says."""

import torch

x = torch.randn(1, 2, 2, 2).expand(2, 2, 2, 2)
n_channels, height, width = x.shape[1:]
offsets = torch.arange(x.numel())  # ((n * Cin + c) * Hin + h) * Win + w, over all of x
assert int(offsets.max()) >= x.untyped_storage().nbytes() // 4
assert x.stride() != (n_channels * height * width, height * width, width, 1)
