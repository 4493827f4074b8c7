"""level1_64, transposed 1D convolution: x is addressed by batch * channels * length + channel * length,
from its shape alone, and never made contiguous."""

import torch

x = torch.randn(1, 16, 2).expand(2, 16, 2)
last_offset_read = x.numel() - 1
assert last_offset_read >= x.untyped_storage().nbytes() // 4
