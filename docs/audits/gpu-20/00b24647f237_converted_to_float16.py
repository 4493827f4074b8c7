"""level1_63, convolution: input and weights are converted to float16, which loses inputs scaled by
2**-24; and the output is float32 whatever the input's dtype."""

import torch

torch.manual_seed(0)
x, weight = torch.randn(2, 9) * 2.0**-24, torch.randn(16, 9)
truth = x @ weight.t()
kernel = x.half().float() @ weight.half().float().t()
assert (kernel - truth).norm() > 0.1 * truth.norm()
assert torch.nn.functional.linear(x.bfloat16(), weight.bfloat16()).dtype is torch.bfloat16
