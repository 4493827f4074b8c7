"""What a reference file declares beside its sizes."""

from __future__ import annotations

import pytest

from adjudge.frontends.kernelbench import KernelBenchProgram

SOURCE = """
import torch

REQUIRES_KERNEL = {kernel}


class Model(torch.nn.Module):
    def forward(self, x):
        return torch.relu(x)


def get_inputs():
    return [torch.randn(8, 16, requires_grad={training})]


def get_init_inputs():
    return []
"""


@pytest.mark.parametrize("kernel", [False, True])
@pytest.mark.parametrize("training", [False, True])
def test_a_demanded_kernel_and_gradients(kernel: bool, training: bool) -> None:
    source = SOURCE.format(kernel=kernel, training=training)
    declared = KernelBenchProgram(source, "relu").task.declared
    assert (declared.kernel, declared.training) == (kernel, training)
