"""Tensors described for a task."""

from __future__ import annotations

import torch

from adjudge import arrays
from adjudge.program import Arguments
from adjudge.task import TensorSpec


def spec_of(name: str, tensor: torch.Tensor) -> TensorSpec:
    """Shape, dtype and, where there are values, their range."""
    low = high = None
    if tensor.numel() and not tensor.is_complex() and not tensor.is_meta:
        least, greatest = torch.aminmax(tensor.detach().double())
        low, high = float(least), float(greatest)
    return TensorSpec(
        name=name,
        shape=tuple(tensor.shape),
        dtype=arrays.dtype_name(tensor.dtype),
        low=low,
        high=high,
    )


def requires_grad(arguments: Arguments) -> bool:
    """Whether the task's author asks for gradients of an input, and so declares training."""
    return any(tensor.requires_grad for _, tensor in arguments.tensors())


def detached(arguments: Arguments) -> Arguments:
    """The same values without a graph: what is differentiated is a matter of the probe."""
    if not requires_grad(arguments):
        return arguments
    return arguments.mapped(lambda _, v: v.detach() if isinstance(v, torch.Tensor) else v)


def state_specs(module: torch.nn.Module) -> tuple[TensorSpec, ...]:
    """Parameters and buffers, by name."""
    return tuple(
        TensorSpec(name=n, shape=tuple(t.shape), dtype=arrays.dtype_name(t.dtype))
        for n, t in module.state_dict().items()
    )
