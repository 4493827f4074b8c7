import torch
import torch.nn as nn

rows = 16
columns = 256


class Model(nn.Module):
    """Swish: x * sigmoid(x)."""

    def forward(self, x):
        return x * torch.sigmoid(x)


def get_inputs():
    return [torch.randn(rows, columns)]


def get_init_inputs():
    return []
