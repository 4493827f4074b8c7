"""A CPU that answers as a GPU would, so that candidates written for 'cuda' run unmodified.

A candidate that tests `.is_cuda` takes a fallback in silence when it finds a CPU tensor. Here every
tensor claims to be on cuda:0, device arguments that name a GPU are carried out on the CPU, and
`torch.cuda` answers for one device.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

CUDA = torch.device("cuda", 0)
_CPU = torch.device("cpu")
#: The chip that is impersonated: shared memory, registers and so on of an H100/H200.
_PROPERTIES = {
    "name": "NVIDIA H200",
    "major": 9,
    "minor": 0,
    "total_memory": 139 << 30,
    "multi_processor_count": 132,
    "max_threads_per_multi_processor": 2048,
    "max_threads_per_block": 1024,
    "warp_size": 32,
    "regs_per_multiprocessor": 65536,
    "shared_memory_per_block": 49152,
    "shared_memory_per_block_optin": 232448,
    "shared_memory_per_multiprocessor": 233472,
    "L2_cache_size": 50 << 20,
    "gcnArchName": "",
}


def _mapped(value: Any) -> Any:
    if isinstance(value, torch.device):
        return _CPU if value.type == "cuda" else value
    if isinstance(value, str) and value.split(":")[0] == "cuda":
        return _CPU
    if isinstance(value, (tuple, list)) and any(isinstance(v, torch.device) for v in value):
        return type(value)(_mapped(v) for v in value)
    return value


class DeviceFace(TorchFunctionMode):
    """Carries out on the CPU what names a GPU."""

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        kwargs = dict(kwargs or {})
        name = getattr(func, "__name__", "")
        if name == "cuda":
            return args[0]
        if name in ("get_device",):
            return 0
        if "device" in kwargs:
            kwargs["device"] = _mapped(kwargs["device"])
            if isinstance(kwargs["device"], int) and not isinstance(kwargs["device"], bool):
                kwargs["device"] = _CPU
        if name in ("to", "pin_memory", "type"):
            args = (*args[:1], *(_mapped(a) for a in args[1:]))
        kwargs.pop("pin_memory", None)
        if name == "pin_memory":
            return args[0]
        return func(*args, **kwargs)


class _Nothing:
    """Streams, events and guards that have nothing to wait for."""

    cuda_stream = 0
    device = CUDA
    device_index = 0
    stream_id = 0

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        pass

    def __enter__(self) -> _Nothing:
        return self

    def __exit__(self, *args: Any) -> None:
        return None

    def elapsed_time(self, other: Any) -> float:
        return 1.0

    def record(self, *args: Any) -> None:
        return None

    def synchronize(self, *args: Any) -> None:
        return None

    def query(self) -> bool:
        return True

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return lambda *args, **kwargs: None


def _answers() -> dict[str, Any]:
    nothing = _Nothing()
    return {
        "is_available": lambda: True,
        "is_initialized": lambda: True,
        "init": lambda: None,
        "_lazy_init": lambda: None,
        "device_count": lambda: 1,
        "current_device": lambda: 0,
        "set_device": lambda device: None,
        "get_device_name": lambda device=None: _PROPERTIES["name"],
        "get_device_capability": lambda device=None: (9, 0),
        "get_device_properties": lambda device=None: SimpleNamespace(**_PROPERTIES),
        "is_bf16_supported": lambda *args, **kwargs: True,
        "is_current_stream_capturing": lambda: False,
        "synchronize": lambda device=None: None,
        "empty_cache": lambda: None,
        "memory_allocated": lambda device=None: 0,
        "max_memory_allocated": lambda device=None: 0,
        "mem_get_info": lambda device=None: (_PROPERTIES["total_memory"],) * 2,
        "reset_peak_memory_stats": lambda device=None: None,
        "current_stream": lambda device=None: nothing,
        "default_stream": lambda device=None: nothing,
        "stream": lambda stream=None: nothing,
        "device": _Nothing,
        "Stream": _Nothing,
        "Event": _Nothing,
        "manual_seed": lambda seed: None,
        "manual_seed_all": lambda seed: None,
        "get_arch_list": lambda: ["sm_90"],
    }


class _Generator(torch.Generator):
    """A generator asked for on a GPU is one on the CPU."""

    def __new__(cls, device: Any = None) -> _Generator:
        return super().__new__(cls)


_REAL_DEVICE = torch._C.TensorBase.device


def real_device(tensor: torch.Tensor) -> torch.device:
    # Under a function mode the getter would come back through the property that replaced it.
    with torch._C.DisableTorchFunction():
        found: torch.device = _REAL_DEVICE.__get__(tensor)
    return found


def _claimed(tensor: torch.Tensor) -> torch.device:
    real = real_device(tensor)
    return CUDA if real.type == "cpu" else real


def put_on() -> None:
    """Changes torch in this process, for good. Called in the worker, never in the judge."""
    for name, answer in _answers().items():
        setattr(torch.cuda, name, answer)
    torch.version.cuda = "13.0"
    torch.Tensor.is_cuda = property(lambda tensor: real_device(tensor).type == "cpu")  # type: ignore[assignment]
    torch.Tensor.is_cpu = property(lambda tensor: False)  # type: ignore[assignment]
    torch.Tensor.device = property(_claimed)  # type: ignore[assignment]
    torch.Tensor.get_device = lambda tensor: 0  # type: ignore[assignment]
    torch.Generator = _Generator  # type: ignore[misc]
    torch.compiler.set_stance("force_eager")
    _face_backward()
    for name in ("float16", "bfloat16"):
        setattr(torch.cuda, f"is_{name}_supported", lambda *a, **k: True)


def _face_backward() -> None:
    """Keeps the face on in backward passes: `torch.autograd.grad` is itself seen by the function mode,
    which is off while it is carried out, so that a backward function would be refused a GPU."""
    engine = torch.autograd._engine_run_backward  # type: ignore[attr-defined]

    def facing(*args: Any, **kwargs: Any) -> Any:
        with DeviceFace():
            return engine(*args, **kwargs)

    torch.autograd._engine_run_backward = facing  # type: ignore[attr-defined]


@contextlib.contextmanager
def worn(face: str) -> Iterator[None]:
    if face != "cuda":
        yield
        return
    with DeviceFace():
        yield
