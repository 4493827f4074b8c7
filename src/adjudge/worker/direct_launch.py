"""Launches Triton's compiled kernels without the C stub that Triton builds for each signature.

Triton writes, for every list of argument types, a C module that unpacks Python arguments and calls the
driver; a C compiler takes 0.2 to 0.5 s for each, and a battery meets half a dozen signatures of one
kernel. Here the same call is made through ctypes. What the stub does beyond that (clusters, cooperative
and dependent launches, tensor descriptors, nested tuples, scratch memory) is left to Triton's own.
"""

from __future__ import annotations

import ctypes
import operator
import struct
from collections.abc import Callable
from functools import cache
from typing import Any

_INT32 = 1 << 31
_DEVICE_POINTER = 3  # CU_POINTER_ATTRIBUTE_DEVICE_POINTER, cuda.h
_INVALID_VALUE = 1  # CUDA_ERROR_INVALID_VALUE, cuda.h
_WARP = 32


def launcher(source: Any, metadata: Any) -> Any:
    """What runs a compiled kernel; takes the place of `CudaDriver.launcher_cls`."""
    types = tuple(source.signature.values())
    plain = (
        metadata.num_ctas == 1
        and not metadata.launch_cooperative_grid
        and not metadata.launch_pdl
        and not metadata.global_scratch_size
        and not metadata.profile_scratch_size
        and not getattr(metadata, "tensordesc_meta", None)
    )
    if plain and all(_packer(kind) is not None or kind == "constexpr" for kind in types):
        return _Launcher(types)
    from triton.backends.nvidia.driver import CudaLauncher

    return CudaLauncher(source, metadata)


class _Launcher:
    def __init__(self, types: tuple[str, ...]) -> None:
        self._packers = tuple(None if kind == "constexpr" else _packer(kind) for kind in types)

    def __call__(
        self,
        x: Any,
        y: Any,
        z: Any,
        stream: int,
        function: int,
        packed: tuple[int, int, int],
        launch_metadata: Any,
        enter: Callable[[Any], Any] | None,
        leave: Callable[[Any], Any] | None,
        *arguments: Any,
    ) -> None:
        """Arguments as Triton's own launchers take them.

        Raises:
            RuntimeError: the driver refuses the launch.
            ValueError: a pointer is none of the GPU's.
            TypeError, OverflowError: an argument is not what the kernel was compiled for.
        """
        grid = tuple(_int32(n) for n in (x, y, z))
        _ensure_context()
        if enter is not None:
            enter(launch_metadata)
        values = [
            pack(value, number)
            for number, (pack, value) in enumerate(zip(self._packers, arguments, strict=True))
            if pack is not None
        ]
        # Pointers to scratch memory, global and the profiler's, which such a kernel does not use.
        values += [ctypes.c_uint64(0), ctypes.c_uint64(0)]
        # Triton multiplies in C's int: a product past it is launched if what is left of it is positive.
        if ctypes.c_int32(grid[0] * grid[1] * grid[2]).value > 0:
            parameters = (ctypes.c_void_p * len(values))(*map(ctypes.addressof, values))
            warps, _, shared = packed
            _check(
                _driver().cuLaunchKernel(
                    ctypes.c_void_p(function),
                    *map(ctypes.c_uint, grid),
                    *map(ctypes.c_uint, (_WARP * warps, 1, 1)),
                    ctypes.c_uint(shared),
                    ctypes.c_void_p(stream),
                    parameters,
                    None,
                )
            )
        if leave is not None:
            leave(launch_metadata)


@cache
def _driver() -> ctypes.CDLL:
    return ctypes.CDLL("libcuda.so.1")


def _check(code: int) -> None:
    if code:
        words = ctypes.c_char_p()
        _driver().cuGetErrorString(code, ctypes.byref(words))
        raise RuntimeError(f"Triton Error [CUDA]: {(words.value or b'').decode()}")


def _ensure_context() -> None:
    """A thread that has no context yet takes the device's own."""
    context = ctypes.c_void_p()
    _check(_driver().cuCtxGetCurrent(ctypes.byref(context)))
    if not context:
        device = ctypes.c_int()
        _check(_driver().cuDeviceGet(ctypes.byref(device), 0))
        _check(_driver().cuDevicePrimaryCtxRetain(ctypes.byref(context), device))
        _check(_driver().cuCtxSetCurrent(context))


def _int32(value: Any) -> int:
    number = operator.index(value)
    if not -_INT32 <= number < _INT32:
        raise OverflowError("Python int too large to convert to C int")
    return number


def _pointer(value: Any, number: int) -> ctypes.c_uint64:
    if value is None:
        return ctypes.c_uint64(0)
    if isinstance(value, int):
        return ctypes.c_uint64(value)
    if not callable(getattr(value, "data_ptr", None)):
        raise TypeError("Pointer argument must be either uint64 or have data_ptr method")
    address = value.data_ptr()
    if not isinstance(address, int):
        raise TypeError("data_ptr method of Pointer object must return 64-bit int")
    if not address:
        return ctypes.c_uint64(0)
    found = ctypes.c_uint64(0)
    code = _driver().cuPointerGetAttribute(
        ctypes.byref(found), _DEVICE_POINTER, ctypes.c_uint64(address)
    )
    if code == _INVALID_VALUE:
        raise ValueError(
            f"Pointer argument (at {number}) cannot be accessed from Triton (cpu tensor?)"
        )
    _check(code)
    return found


def _integer(kind: Any, low: int, high: int) -> Callable[[Any, int], Any]:
    def pack(value: Any, number: int) -> Any:
        whole = operator.index(value)
        if not low <= whole < high:
            raise OverflowError(f"argument {number} is beyond its type: {whole}")
        return kind(whole)

    return pack


def _float(code: str, kind: Any) -> Callable[[Any, int], Any]:
    def pack(value: Any, number: int) -> Any:
        return kind.from_buffer_copy(struct.pack(code, float(value)))

    return pack


def _float32(value: Any, number: int) -> ctypes.c_float:
    # A conversion of C's: what is too large is infinite, where struct.pack would raise.
    return ctypes.c_float(float(value))


def _bfloat16(value: Any, number: int) -> ctypes.c_uint16:
    # Cut off, as Triton's stub does.
    return ctypes.c_uint16(ctypes.c_uint32.from_buffer_copy(_float32(value, number)).value >> 16)


@cache
def _packer(kind: Any) -> Callable[[Any, int], Any] | None:
    """From an argument to what lies in the kernel's parameter memory; None for types left to Triton."""
    if not isinstance(kind, str):
        return None
    if kind.startswith("*"):
        return _pointer
    return _PACKERS.get(kind)


_PACKERS: dict[str, Callable[[Any, int], Any]] = {
    "i32": _integer(ctypes.c_int32, -_INT32, _INT32),
    "i64": _integer(ctypes.c_int64, -(1 << 63), 1 << 63),
    "u64": _integer(ctypes.c_uint64, 0, 1 << 64),
    "u1": _integer(ctypes.c_uint8, 0, 256),
    "fp32": _float32,
    "fp64": lambda value, number: ctypes.c_double(float(value)),
    "fp16": _float("<e", ctypes.c_uint16),
    "bf16": _bfloat16,
}
