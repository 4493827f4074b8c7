"""The control: this repository's own kernels, with the gates as the reference has them."""

import torch
from torch import nn

from gated_recurrence import gated_delta_rule


class ModelNew(nn.Module):
    def forward(self, q, k, v, a, b, state):
        q, k = (nn.functional.normalize(x.float(), dim=-1).to(v.dtype) for x in (q, k))
        g, beta = -nn.functional.softplus(a.float() - 4), torch.sigmoid(b.float())
        return gated_delta_rule(q, k, v, g, beta, initial_state=state)[0]
