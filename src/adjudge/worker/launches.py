"""What a launch tells the judge: its constants, and what each parameter was, so that the kernel can be
compiled elsewhere as it was launched here. The same for every runner."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

import torch
import triton.language as tl

from adjudge.task import Launch
from adjudge.worker.interpreter.session import current

#: Triton's names of types, by torch's.
_NAMES = {
    torch.bool: "u1", torch.uint8: "u8", torch.int8: "i8", torch.int16: "i16", torch.int32: "i32",
    torch.int64: "i64", torch.float16: "fp16", torch.bfloat16: "bf16", torch.float32: "fp32",
    torch.float64: "fp64", torch.float8_e4m3fn: "fp8e4nv", torch.float8_e5m2: "fp8e5",
}  # fmt: skip
#: Triton assumes nothing of numbers but whether this divides them, and whether they are 1.
_DIVISOR = 16
_LONGEST = 200
#: Options of a launch that its machine code depends on.
OPTIONS = ("num_warps", "num_stages", "num_ctas", "maxnreg")


def launch_of(
    kernel: str,
    grid: tuple[int, ...],
    bound: Mapping[str, Any],
    constexprs: Collection[str],
    options: Mapping[str, Any],
    tuned: tuple[int, int],
) -> Launch:
    """The record of one launch.

    Args:
        bound: the kernel's arguments by name.
        constexprs: names of those that are compile-time constants.
        options: everything else that the launch was given by name.
        tuned: how many autotune configurations there are, and which one runs.
    """
    constants, parameters = [], []
    for name, value in bound.items():
        value = getattr(value, "value", value) if name in constexprs else value
        if name in constexprs and isinstance(value, (bool, int)):
            constants.append((name, int(value)))
        parameters.append((name, _constant(value) if name in constexprs else _kind(value)))
    configs, config = tuned
    return Launch(
        kernel=kernel,
        grid=grid,
        constants=tuple(constants),
        parameters=tuple(parameters),
        options=tuple((n, v) for n in OPTIONS if isinstance(v := options.get(n), int)),
        configs=configs,
        config=config,
    )


def run_tuned(self: Any, *args: Any, **kwargs: Any) -> Any:
    """Takes the place of `Autotuner.run`: one configuration, the one asked for. A choice by timing would
    differ from run to run."""
    self.nargs = dict(zip(self.arg_names, args, strict=False))
    configs = self.prune_configs(kwargs) if len(self.configs) > 1 else self.configs
    chosen = max(current.options.config, 0) % len(configs)
    config = list(configs)[chosen]
    self.best_config = config
    if config.pre_hook is not None:
        config.pre_hook({**self.nargs, **kwargs, **config.all_kwargs()})
    current.tuned = (len(configs), chosen)
    try:
        return self.fn.run(*args, **kwargs, **config.all_kwargs())
    finally:
        current.tuned = (0, -1)
        self.nargs = None


def _constant(value: Any) -> str:
    if isinstance(value, tl.dtype):
        return f"=dtype {value.name}"
    if value is None or isinstance(value, (bool, int, float, str)):
        text = repr(value)
        return f"={text}" if len(text) <= _LONGEST else "?"
    return "?"


def _kind(value: Any) -> str:
    if isinstance(value, torch.Tensor):
        name = _NAMES.get(value.dtype)
        aligned = ":16" if value.data_ptr() % _DIVISOR == 0 else ""
        return f"*{name}{aligned}" if name else "?"
    if value is None or (isinstance(value, int) and value is not True and value == 1):
        return f"={value}"
    if isinstance(value, bool):
        return "u1"
    if isinstance(value, int):
        width = 32 if -(1 << 31) <= value < 1 << 31 else 64
        return f"i{width}:16" if value % _DIVISOR == 0 else f"i{width}"
    return "fp32" if isinstance(value, float) else "?"
