"""DeltaNet as its definition has it, token by token, with the normalisation and the gate of its layer
inside: any numbers are then in the domain of its kernels."""

import torch
from torch import nn

# A chunk of 64 tokens, and a part of one.
B, T, H, K, V = 1, 80, 2, 64, 64


class Model(nn.Module):
    def forward(self, q, k, v, b, state):
        """q, k [B, T, H, K]; v [B, T, H, V]; b [B, T, H]; state [B, H, K, V], the first one; returns
        [B, T, H, V]."""
        # As the layer hands them to its operation.
        q, k = (nn.functional.normalize(x.float(), dim=-1).to(v.dtype).float() for x in (q, k))
        beta = torch.sigmoid(b.float())[..., None, None]
        q, k, value = (
            (q * q.shape[-1] ** -0.5)[..., None, :],
            k[..., None, :],
            v.float()[..., None, :],
        )
        outputs = []
        for t in range(q.shape[1]):
            write = beta[:, t] * (value[:, t] - k[:, t] @ state)
            state = state + k[:, t].mT @ write
            outputs.append(q[:, t] @ state)
        return torch.stack(outputs, dim=1).squeeze(-2).to(v.dtype)


def get_inputs():
    def drawn(*shape, dtype=torch.bfloat16):
        return torch.randn(*shape, dtype=dtype, requires_grad=True)

    return [
        drawn(B, T, H, K),
        drawn(B, T, H, K),
        drawn(B, T, H, V),
        drawn(B, T, H),
        drawn(B, H, K, V, dtype=torch.float32),
    ]


def get_init_inputs():
    return []
