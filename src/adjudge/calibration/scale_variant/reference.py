import torch
import torch.nn as nn

rows = 32
columns = 128


class Model(nn.Module):
    """Each row over its largest size."""

    def forward(self, x):
        return x / x.abs().amax(dim=1, keepdim=True).clamp(min=1e-12)


def get_inputs():
    return [torch.randn(rows, columns)]


def get_init_inputs():
    return []
