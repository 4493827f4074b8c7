import torch
import torch.nn as nn

rows = 32
columns = 256


class Model(nn.Module):
    """Each row over its root mean square."""

    def forward(self, x):
        wide = x.float()
        return (wide * torch.rsqrt(wide.pow(2).mean(dim=1, keepdim=True) + 1e-6)).to(x.dtype)


def get_inputs():
    return [torch.randn(rows, columns)]


def get_init_inputs():
    return []
