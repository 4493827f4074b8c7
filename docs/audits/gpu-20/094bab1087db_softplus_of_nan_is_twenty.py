"""level1_29, Softplus: `tl.minimum(x, 20.0)` gives 20 for NaN, and the choice by x > 20 does not take x;
and the output is float32 whatever the input's dtype."""

import torch

x = torch.tensor(float("nan"))
capped = torch.fmin(x, torch.tensor(20.0))  # tl.minimum
got = torch.where(x > 20, x, torch.log(1 + capped.exp()))
assert torch.nn.functional.softplus(x).isnan()
assert abs(got - 20) < 1e-6
half = torch.zeros(4, dtype=torch.float16)
assert torch.nn.functional.softplus(half).dtype is torch.float16
assert torch.empty_like(half, dtype=torch.float32).dtype is torch.float32
