import torch
import torch.nn as nn

rows = 16
columns = 256


class Model(nn.Module):
    """Index of the largest element of each row; the first one where several are equal."""

    def forward(self, x):
        return torch.argmax(x, dim=1)


def get_inputs():
    return [torch.randn(rows, columns)]


def get_init_inputs():
    return []
