"""level1_30, softsign: x.view(-1) keeps the stride of a one-row slice, and the kernel reads consecutive
addresses."""

import torch

storage = torch.arange(8.0)
x = storage.view(1, 8)[:, ::2]
flat = x.view(-1)  # allowed: one row, stride 2
assert flat.stride() == (2,)
read = flat.as_strided((4,), (1,))
assert not torch.equal(read, flat)
