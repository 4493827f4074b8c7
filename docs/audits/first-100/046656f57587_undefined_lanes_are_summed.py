"""level1_96, smooth L1 loss: the loads of both operands are masked without a value for the lanes that
are masked off, and the sum runs over all lanes: what those lanes hold is undefined. With nothing to
sum, a guard returns 0 where the mean is NaN."""

import torch

lanes, n = 4, 1
undefined = float("nan")
a, b = torch.full((lanes,), undefined), torch.full((lanes,), undefined)
a[:n], b[:n] = 1.0, 0.5
difference = (a - b).abs()
loss = torch.where(difference < 1, 0.5 * difference**2, difference - 0.5)
truth = torch.nn.functional.smooth_l1_loss(a[:n], b[:n])
kernel = loss.sum() / n
assert truth.isfinite()
assert kernel.isnan()
assert torch.nn.functional.smooth_l1_loss(torch.empty(0), torch.empty(0)).isnan()
