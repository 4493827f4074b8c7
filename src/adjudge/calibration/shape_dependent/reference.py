import torch
import torch.nn as nn
import torch.nn.functional as F

rows = 16
columns = 256


class Model(nn.Module):
    """Layer norm without parameters."""

    def forward(self, x):
        return F.layer_norm(x, x.shape[-1:])


def get_inputs():
    return [torch.randn(rows, columns)]


def get_init_inputs():
    return []
