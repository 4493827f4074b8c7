import torch
import torch.nn as nn

rows = 8
width = 64
outputs = 32


class Model(nn.Module):
    """A linear layer."""

    def __init__(self, width, outputs):
        super().__init__()
        self.linear = nn.Linear(width, outputs)

    def forward(self, x):
        return self.linear(x)


def get_inputs():
    return [torch.randn(rows, width)]


def get_init_inputs():
    return [width, outputs]
