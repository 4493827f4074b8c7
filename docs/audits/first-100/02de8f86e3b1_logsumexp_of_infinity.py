"""level2_58, logsumexp over channels and a clamp: with an infinite channel the kernel forms
exp(inf - inf), and tl.maximum turns the NaN into the lower bound. The answer is the upper one."""

import torch

x = torch.tensor([torch.inf, 0.5])
truth = torch.logsumexp(x, dim=0)
truth = torch.clamp(truth * torch.sigmoid(truth + 3) / 6, -1, 1)
assert truth == 1
largest = x.max()
lse = largest + (x - largest).exp().sum().log()
swish = lse * torch.sigmoid(lse + 3) / 6
assert swish.isnan()
kernel = torch.fmin(torch.fmax(swish, torch.tensor(-1.0)), torch.tensor(1.0))
assert kernel == -1
