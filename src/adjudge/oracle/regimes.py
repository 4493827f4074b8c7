"""Precision regimes: what operands, sums and stored values are kept in."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from adjudge import arrays
from adjudge.program import Arguments, OutsideDomain

#: Unit roundoffs: half the distance from 1 to the next number.
FP32, TF32, BF16, FP16 = 2.0**-24, 2.0**-11, 2.0**-8, 2.0**-11


@dataclass(frozen=True, slots=True)
class Regime:
    """Unit roundoffs. An operand roundoff of 0 means that products take operands as stored."""

    name: str
    operand: float
    accumulate: float
    store: float


_TABLE = (
    Regime("fp32", 0.0, FP32, FP32),
    Regime("tf32", TF32, FP32, FP32),
    Regime("bf16xfp32", BF16, FP32, FP32),
    Regime("fp16xfp32", FP16, FP32, FP32),
    Regime("bf16xbf16", BF16, BF16, BF16),
    Regime("fp16xfp16", FP16, FP16, FP16),
)
#: Strictest first.
REGIMES: tuple[str, ...] = tuple(regime.name for regime in _TABLE)
BY_NAME = {regime.name: regime for regime in _TABLE}

_ROUNDOFF = {
    torch.float64: 2.0**-53,
    torch.float32: FP32,
    torch.float16: FP16,
    torch.bfloat16: BF16,
    torch.float8_e4m3fn: 2.0**-4,
    torch.float8_e5m2: 2.0**-3,
}
#: Below these magnitudes neither the sign nor zero-or-not is compared: kernels flush there. float16
#: is not flushed, but its values stand no closer than its subnormal spacing.
_FLOOR = {
    "float64": 2.0**-1022,
    "float32": 2.0**-126,
    "bfloat16": 2.0**-126,
    "float16": 2.0**-24,
    "float8_e4m3fn": 2.0**-9,
    "float8_e5m2": 2.0**-16,
    "complex64": 2.0**-126,
    "complex128": 2.0**-1022,
}


def roundoff(dtype: torch.dtype) -> float:
    """Unit roundoff of a float dtype; float32's for others."""
    return _ROUNDOFF.get(dtype, FP32)


def floor_of(dtype: str) -> float:
    return _FLOOR.get(dtype, 0.0)


class _Convolutions(TorchDispatchMode):
    def __init__(self) -> None:
        super().__init__()
        self.seen = False

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        name = func._schema.name
        if "convolution" in name or "mkldnn_rnn" in name:
            self.seen = True
        return func(*args, **(kwargs or {}))


def native_dtype(arguments: Arguments, reference: Any) -> torch.dtype:
    """The float dtype that the reference works in: the widest of its inputs, else its parameters'."""
    tensors = [t for _, t in arrays.tensors_in((arguments.args, dict(arguments.kwargs)))]
    if isinstance(reference, torch.nn.Module) and not any(t.is_floating_point() for t in tensors):
        tensors = list(reference.parameters())
    kinds = {t.dtype for t in tensors if t.is_floating_point()}
    for dtype in (torch.float32, torch.float64, torch.float16, torch.bfloat16):
        if dtype in kinds:
            return dtype
    return torch.float32


def required_regime(make: Callable[[], Callable[..., Any]], arguments: Arguments) -> str:
    """The weaker of fp32 and what the reference's default flags give on a CUDA device.

    cuDNN's convolutions and recurrent networks default to tf32, matrix products do not
    (`torch.backends.cudnn.allow_tf32`, `torch.backends.cuda.matmul.allow_tf32`). References in half
    precision are held to their own storage.

    Raises:
        OutsideDomain: the reference does not answer on these arguments.
    """
    reference = make()
    dtype = native_dtype(arguments, reference)
    if dtype is torch.float16:
        return "fp16xfp32"
    if dtype is torch.bfloat16:
        return "bf16xfp32"
    modules = list(reference.modules()) if isinstance(reference, torch.nn.Module) else []
    if any(isinstance(module, torch.nn.RNNBase) for module in modules):
        return "tf32"
    args = arrays.map_leaves(arguments.args, _fresh)
    kwargs = arrays.map_leaves(dict(arguments.kwargs), _fresh)
    try:
        with torch.no_grad(), _Convolutions() as watch:
            reference(*args, **kwargs)
    except Exception as error:
        raise OutsideDomain(f"{type(error).__name__}: {error}") from error
    return "tf32" if watch.seen else "fp32"


def _fresh(path: str, value: Any) -> Any:
    return value.detach().clone() if isinstance(value, torch.Tensor) else value
