"""level2_87, Mish as x ((1 + e^x)^2 - 1) / ((1 + e^x)^2 + 1): infinity over infinity from x = 44 on,
which inputs far from zero reach."""

import torch

x = torch.tensor([50.0])
t = (1 + x.exp()) ** 2
assert (x * (t - 1) / (t + 1)).isnan().all()
assert torch.nn.functional.mish(x).isfinite().all()
