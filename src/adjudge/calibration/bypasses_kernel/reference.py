import torch
import torch.nn as nn

rows = 32
columns = 128

#: The task is to write a kernel: an answer by torch itself is none.
REQUIRES_KERNEL = True


class Model(nn.Module):
    """The positive part of each value."""

    def forward(self, x):
        return torch.relu(x)


def get_inputs():
    return [torch.randn(rows, columns)]


def get_init_inputs():
    return []
