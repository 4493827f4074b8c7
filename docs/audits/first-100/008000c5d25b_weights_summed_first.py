"""level2_18, linear layer summed over its outputs: the weights are summed before the product. With an
infinite input, the layer's outputs are infinities of both signs, whose sum is NaN; the product with
the summed weight is one infinity."""

import torch

x = torch.tensor([[float("inf")]])
weight = torch.tensor([[1.0], [-0.5]])
truth = (x @ weight.t()).sum(dim=1)
kernel = (x * weight.sum(dim=0)).sum(dim=1)
assert truth.isnan().all()
assert kernel.isinf().all()
