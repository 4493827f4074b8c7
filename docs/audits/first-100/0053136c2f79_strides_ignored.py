"""level1_83, depthwise convolution: offsets are computed from the shape as if x were contiguous, and
x is never made so. An expanded x has fewer elements in memory than its shape says."""

import torch

x = torch.randn(1, 2, 6, 6).to(memory_format=torch.channels_last)
flat = x.as_strided((x.numel(),), (1,))  # what lies at consecutive addresses
assert not torch.equal(flat.view(x.shape), x)
expanded = torch.randn(1, 1, 6, 6).expand(2, 2, 6, 6)
last_offset_read = expanded.numel() - 1
assert last_offset_read >= expanded.untyped_storage().nbytes() // 4
