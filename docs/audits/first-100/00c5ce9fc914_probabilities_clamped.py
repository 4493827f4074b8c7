"""level1_98, Kullback-Leibler divergence: both probabilities are clamped to 1e-8 from below (with a
maximum that drops NaN), so the divergence from a zero prediction is finite, and a NaN is lost."""

import torch

p, t = torch.tensor([[0.0, 1.0]]), torch.tensor([[0.5, 0.5]])
truth = torch.nn.functional.kl_div(p.log(), t, reduction="batchmean")
p_safe, t_safe = p.clamp(min=1e-8), t.clamp(min=1e-8)
kernel = (t_safe * (t_safe.log() - p_safe.log())).sum()
assert truth.isinf()
assert kernel.isfinite()
nan = torch.tensor(float("nan"))
assert torch.fmax(nan, torch.tensor(1e-8)) == 1e-8  # tl.maximum
