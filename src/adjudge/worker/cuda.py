"""A real GPU: its context is opened before the door is closed, tensors lie between guards in its memory.

What guards and poison cannot cover is memory that the candidate takes from the driver itself (raw
`cudaMalloc`, static device memory) and shared memory.
"""

from __future__ import annotations

import contextlib
import mmap
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.utils._python_dispatch import _disable_current_modes

from adjudge import arrays
from adjudge.worker import extensions, launches, memory, sandbox, streams
from adjudge.worker.interpreter.session import Log, Options, current, session
from adjudge.worker.protocol import FILL_BYTES, GUARD

#: Storage past which only the tensor's own elements travel: "far" layouts span 26 GiB of nothing.
_SPARSE = 1 << 30
#: What the allocator's cache is given before each run, so that memory which C++ takes from it without
#: asking Python holds the fill too: one large block, and small ones for its pool of small ones.
_LARGE_POISON, _SMALL_POISON, _SMALL_BLOCKS = 64 << 20, 512 << 10, 8


class Cuda:
    """Implements `runners.Runner` on the first GPU."""

    def __init__(self, settings: sandbox.Settings) -> None:
        self._settings = settings
        self._device = torch.device("cuda", 0)
        self._placed: list[tuple[Mapping[str, Any], torch.Tensor, torch.Tensor | None]] = []
        #: Where the candidate may use others than the caller's.
        self._streams: streams.Streams | None = None

    def close_door(self, folders: Sequence[Path]) -> None:
        # A context cannot be opened behind the door; one that is open works on.
        torch.zeros(1, device=self._device).sum().item()
        torch.cuda.set_per_process_memory_fraction(self._settings.share, self._device)
        # Torch counts devices through a library that does not start behind the door, and remembers what
        # it counted once there is a context.
        torch.cuda.device_count()
        # What `load_inline` compiles for if it is told nothing, but for a second copy for later chips.
        major, minor = torch.cuda.get_device_capability(self._device)
        os.environ["TORCH_CUDA_ARCH_LIST"] = f"{major}.{minor}"
        _record_launches()
        if self._settings.isolation == "full":
            sandbox.enter_namespaces(processes=False)
        sandbox.restrict(self._settings, folders)

    def expect(self, source: str) -> None:
        if "cpp_extension" in source:
            extensions.hasten(source)
        if streams.named_in(source):
            self._streams = streams.Streams(self._device)

    @contextlib.contextmanager
    def answering(self) -> Iterator[None]:
        yield

    @contextlib.contextmanager
    def session(self, header: Mapping[str, Any]) -> Iterator[Log]:
        self._placed.clear()
        _poison_cache(FILL_BYTES[header["fill"]], self._device)
        # The order of program instances is the hardware's own, whatever the schedule.
        with session(Options(config=header["config"])) as log:
            yield log

    def unobserved(self) -> contextlib.AbstractContextManager[None]:
        return _as_shipped()

    def tensor(self, shared: mmap.mmap, spec: Mapping[str, Any]) -> torch.Tensor:
        host = memory.tensor_at(shared, spec)
        with _disable_current_modes():
            if not spec["nbytes"]:
                return host.to(self._device)
            if spec["nbytes"] > _SPARSE:
                return self._sparse(spec, host)
            around = torch.frombuffer(
                shared,
                dtype=torch.uint8,
                count=spec["nbytes"] + 2 * GUARD,
                offset=spec["start"] - GUARD,
            ).to(self._device)
            tensor = memory.span(around, GUARD, spec["nbytes"], host.dtype)
            tensor = tensor.as_strided(host.shape, host.stride(), spec["offset"])
        self._placed.append((spec, tensor, around))
        return tensor

    def _sparse(self, spec: Mapping[str, Any], host: torch.Tensor) -> torch.Tensor:
        storage = torch.empty(spec["nbytes"], dtype=torch.uint8, device=self._device)
        tensor = storage.view(host.dtype).as_strided(host.shape, host.stride(), spec["offset"])
        tensor.copy_(host)
        self._placed.append((spec, tensor, None))
        return tensor

    def device(self) -> torch.device:
        return self._device

    def module(self, built: torch.nn.Module) -> torch.nn.Module:
        with _disable_current_modes():
            return built.to(self._device)

    def wait(self) -> None:
        torch.cuda.synchronize()

    def hold_streams(self) -> None:
        if self._streams is not None:
            self._streams.hold()

    def late(self, result: Any) -> bool:
        if self._streams is None:
            return False
        return self._streams.late([tensor for _, tensor in arrays.tensors_in(result)])

    def give_back(self, shared: mmap.mmap) -> None:
        raw = np.frombuffer(shared, dtype=np.uint8)
        for spec, tensor, around in self._placed:
            if around is None:
                memory.tensor_at(shared, spec).copy_(tensor)
            else:
                start = spec["start"] - GUARD
                raw[start : start + around.numel()] = around.cpu().numpy()

    def is_dead(self) -> bool:
        """Errors of the device stay: every later call fails with them."""
        try:
            torch.cuda.synchronize()
        except RuntimeError:
            return True
        return False


def _poison_cache(byte: int, device: torch.device) -> None:
    sizes = [_LARGE_POISON, *[_SMALL_POISON] * _SMALL_BLOCKS]
    blocks = [torch.full((size,), byte, dtype=torch.uint8, device=device) for size in sizes]
    torch.cuda.synchronize()
    del blocks


#: Triton's own functions, in place of which ours stand: owner, name, value.
_SHIPPED: list[tuple[Any, str, Any]] = []


@contextlib.contextmanager
def _as_shipped() -> Iterator[None]:
    """Triton launches kernels by itself, and tunes by time, as its users have it."""
    ours = [(owner, name, getattr(owner, name)) for owner, name, _ in _SHIPPED]
    for owner, name, value in _SHIPPED:
        setattr(owner, name, value)
    try:
        yield
    finally:
        for owner, name, value in ours:
            setattr(owner, name, value)


def _record_launches() -> None:
    """Compiled kernels tell what they were launched with, and run one configuration, not the fastest."""
    try:
        from triton import knobs
        from triton.backends.nvidia.driver import CudaDriver, CudaLauncher
        from triton.runtime import autotuner, driver
        from triton.runtime.jit import JITFunction
    except ImportError:
        return
    run = JITFunction.run
    _SHIPPED.append((JITFunction, "run", run))
    _SHIPPED.append((autotuner.Autotuner, "run", autotuner.Autotuner.run))
    if isinstance(driver.active, CudaDriver):
        _SHIPPED.append((driver.active, "launcher_cls", CudaLauncher))

    def recorded(self: Any, *args: Any, grid: Any, warmup: bool, **kwargs: Any) -> Any:
        if not warmup:
            current.log.launches.append(_launch(self, args, kwargs, grid))
        return run(self, *args, grid=grid, warmup=warmup, **kwargs)

    def told(*, times: Any, cache_hit: bool, **facts: Any) -> None:
        if not cache_hit:
            current.log.compiled.append(times.total / 1e6)

    JITFunction.run = recorded
    knobs.compilation.listener = told
    autotuner.Autotuner.run = launches.run_tuned


def _launch(kernel: Any, args: tuple[Any, ...], kwargs: dict[str, Any], grid: Any) -> Any:
    names = [p.name for p in kernel.params]
    bound = {p.name: p.default for p in kernel.params if p.has_default}
    bound |= dict(zip(names, args, strict=False)) | {k: v for k, v in kwargs.items() if k in names}
    sizes = grid(bound) if callable(grid) else grid
    sizes = sizes if isinstance(sizes, (tuple, list)) else (sizes,)
    return launches.launch_of(
        kernel.fn.__name__,
        (*(int(n) for n in sizes), 1, 1)[:3],
        {name: bound.get(name) for name in names},
        {p.name for p in kernel.params if p.is_constexpr},
        {k: v for k, v in kwargs.items() if k not in names},
        current.tuned,
    )


@dataclass(frozen=True, slots=True)
class Device:
    name: str
    #: Major and minor version of its instructions in one number, 90 for Hopper.
    capability: int
    #: Bytes.
    memory: int


def find_device() -> Device | None:
    """The GPU that candidates run on, or None. A child is asked: asking opens a context, which would not
    survive a fork, and descriptors, which a worker's door closes."""
    if not torch.version.cuda:
        return None
    there, here = os.pipe()
    try:
        sandbox.in_child(lambda: os.write(here, _words()) > 0)
        os.close(here)
        words = os.read(there, 200).decode().split(" ", 2)
    finally:
        os.close(there)
    if len(words) < 3:
        return None
    return Device(name=words[2], capability=int(words[0]), memory=int(words[1]))


def _words() -> bytes:
    found = torch.cuda.get_device_properties(0)
    return f"{found.major}{found.minor} {found.total_memory} {found.name}".encode()
