import torch
import torch.nn as nn

rows = 16
inner = 64
columns = 32


class Model(nn.Module):
    """int8 operands with a scale for each row and column; sums in int32, the answer in float32."""

    def forward(self, a, b, a_scale, b_scale):
        total = torch.matmul(a.to(torch.int32), b.to(torch.int32))
        return total.to(torch.float32) * a_scale * b_scale


def get_inputs():
    a = torch.randint(-127, 128, (rows, inner), dtype=torch.int8)
    b = torch.randint(-127, 128, (inner, columns), dtype=torch.int8)
    return [a, b, torch.rand(rows, 1) * 0.01 + 0.01, torch.rand(1, columns) * 0.01 + 0.01]


def get_init_inputs():
    return []
