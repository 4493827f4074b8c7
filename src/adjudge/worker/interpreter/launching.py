"""Launches: the order of program instances, what was launched, autotuners without a device."""

from __future__ import annotations

import inspect
from types import SimpleNamespace
from typing import Any

import triton
import triton.language as tl
from triton.runtime import autotuner, driver
from triton.runtime import interpreter as stock
from triton.runtime.errors import InterpreterError

from adjudge.worker.interpreter import simultaneous
from adjudge.worker.interpreter.addresses import EXTENT, extent_of
from adjudge.worker.interpreter.session import Unsupported, current, order
from adjudge.worker.launches import launch_of, run_tuned


def install() -> None:
    stock.GridExecutor.__call__ = _launch
    stock._implicit_cvt = _converted(stock._implicit_cvt)
    autotuner.Autotuner.run = run_tuned
    driver.set_active(_Driver())
    _patch_language_once()


def _converted(original: Any) -> Any:
    def convert(arg: Any) -> Any:
        out = original(arg)
        if hasattr(arg, "untyped_storage") and isinstance(out, tl.tensor):
            out.handle.attr[EXTENT] = extent_of(arg, "argument")
        return out

    return convert


def _launch(self: Any, *args: Any, **kwargs: Any) -> None:
    names = inspect.getfullargspec(self.fn).args
    options = {k: v for k, v in kwargs.items() if k not in names}
    kwargs = {k: v for k, v in kwargs.items() if k in names}
    for hook in self.pre_run_hooks:
        hook(*args, **kwargs)
    bound = inspect.getcallargs(self.fn, *args, **kwargs)
    converted = {}
    for name, value in bound.items():
        converted[name] = value if name in self.constexprs else stock._implicit_cvt(value)
        if isinstance(converted[name], tl.tensor) and EXTENT in converted[name].handle.attr:
            first, end, _ = converted[name].handle.attr[EXTENT]
            converted[name].handle.attr[EXTENT] = (first, end, name)
    grid = self.grid(bound) if callable(self.grid) else self.grid
    grid = tuple(int(n) for n in (grid if isinstance(grid, (tuple, list)) else (grid,)))
    grid = (*grid, *(1,) * (3 - len(grid)))
    kernel = self.fn.__name__
    launch = launch_of(kernel, grid, bound, self.constexprs, options, current.tuned)
    current.kernel = kernel
    builder = stock.interpreter_builder
    builder.set_grid_dim(*grid)
    instances = [(x, y, z) for z in range(grid[2]) for y in range(grid[1]) for x in range(grid[0])]

    def run(instance: simultaneous.Instance) -> None:
        builder.set_grid_idx(*instance)
        self.fn(**converted)

    try:
        if current.options.schedule == "simultaneous":
            current.log.races += simultaneous.launch(instances, run, _report_to, kernel)
        else:
            for instance in order(instances):
                run(instance)
    except simultaneous.TooMany as error:
        raise Unsupported("a launch that touches too much memory to be recorded") from error
    except (Unsupported, InterpreterError):
        raise
    except Exception as error:
        raise InterpreterError(repr(error)) from error
    # One that has raised has done no work: what a candidate falls back on then is not its kernel's.
    current.log.launches.append(launch)


def _report_to(recorder: simultaneous.Recorder | None) -> None:
    current.recorder = recorder


class _Driver:
    """Answers what candidates and triton ask of the active driver."""

    def get_current_target(self) -> Any:
        return triton.backends.compiler.GPUTarget("cuda", 90, 32)

    def get_current_device(self) -> int:
        return 0

    def get_current_stream(self, device: Any = None) -> int:
        return 0

    def set_current_device(self, device: Any) -> None:
        return None

    def get_device_interface(self) -> Any:
        import torch

        return torch.cuda

    def get_active_torch_device(self) -> Any:
        import torch

        return torch.device("cuda", 0)

    def get_device_capability(self, device: Any = None) -> tuple[int, int]:
        return (9, 0)

    def get_empty_cache_for_benchmark(self) -> Any:
        import torch

        return torch.empty(1)

    def clear_cache(self, cache: Any) -> None:
        return None

    def get_benchmarker(self) -> Any:
        return lambda fn, quantiles=None, **_: [1.0] * len(quantiles or (0.5,))

    @property
    def utils(self) -> Any:
        properties = {
            "max_shared_mem": 232_448,
            "max_num_regs": 65_536,
            "multiprocessor_count": 132,
            "warpSize": 32,
            "sm_clock_rate": 1_980_000,
            "mem_clock_rate": 3_201_000,
            "mem_bus_width": 6144,
        }
        return SimpleNamespace(get_device_properties=lambda device=0: properties)


def _patch_language_once() -> None:
    """Triton patches its language at each call of each device function; once is enough."""
    from triton.language.extra import libdevice as generic
    from triton.language.extra.cuda import libdevice

    def language() -> None:
        """Its globals are what the stock patch looks through."""

    language.__globals__.setdefault("tl", tl)
    language.__globals__["core"] = tl.core
    stock._patch_lang(language)
    scope = stock._LangPatchScope()
    stock._patch_builtin(libdevice, stock.interpreter_builder, scope)
    for name in dir(libdevice):
        member = getattr(libdevice, name)
        if not name.startswith("_") and callable(member):
            setattr(generic, name, member)
    stock._patch_lang = lambda fn: stock._LangPatchScope()
