"""level1_8, matrix product: where K is 0 a guard returns the output as torch.empty left it; a sum over
nothing is 0."""

import torch

torch.use_deterministic_algorithms(True)
torch.utils.deterministic.fill_uninitialized_memory = True
truth = torch.randn(1, 0) @ torch.randn(0, 1)
kernel = torch.empty(1, 1)  # NaN under torch's own fill of fresh memory
assert truth == 0
assert kernel.isnan().all()
