import torch
import torch.nn as nn

rows = 16
columns = 128


class Model(nn.Module):
    """RMSNorm without parameters."""

    def forward(self, x):
        return x * torch.rsqrt((x * x).mean(dim=-1, keepdim=True) + 1e-6)


def get_inputs():
    return [torch.randn(rows, columns)]


def get_init_inputs():
    return []
