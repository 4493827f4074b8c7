"""level1_80, convolution: x is addressed from its shape alone, and never made contiguous."""

import torch

x = torch.randn(1, 2, 3, 2).expand(2, 2, 3, 2)
last_offset_read = x.numel() - 1
assert last_offset_read >= x.untyped_storage().nbytes() // 4
