"""level2_78, pooling and a sum over channels: output and grid have 5 x 10 x 10 places, the pooled
size of one input alone. At any other the kernel reads past the end."""

import torch

pooled = torch.randn(1, 16, 1, 1, 1)
truth = pooled.sum(dim=1, keepdim=True)
assert truth.shape == (1, 1, 1, 1, 1)
kernel_shape = (1, 1, 5, 10, 10)
assert kernel_shape != tuple(truth.shape)
strides = pooled.stride()
last = sum((n - 1) * s for n, s in zip((5, 10, 10), strides[2:], strict=True)) + 15 * strides[1]
assert last >= pooled.numel()  # the last program's last channel
