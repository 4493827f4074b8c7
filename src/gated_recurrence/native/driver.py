"""The six calls of the CUDA driver that loading and launching take, through ctypes.

libcuda is there wherever torch sees a GPU, so this costs no dependency.
"""

from __future__ import annotations

import ctypes
import functools
from ctypes import byref, c_int, c_uint, c_uint32, c_uint64, c_void_p
from pathlib import Path

import torch
from torch import Tensor

from gated_recurrence.native.build import cubins
from gated_recurrence.native.kernels import KERNELS, Kernel

MAX_DYNAMIC_SHARED = 8  # CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
BFLOAT16, SWIZZLE_128B, PROMOTE_256B = 9, 3, 3  # of CUtensorMapDataType, ...Swizzle, ...L2promotion
BOX = 64  # rows and columns of every box: 128 bytes is the widest swizzle


class TensorMap(ctypes.Structure):
    """A CUtensorMap."""

    _fields_ = (("words", c_uint64 * 16),)


@functools.cache
def _library() -> ctypes.CDLL:
    return ctypes.CDLL("libcuda.so.1")


def _call(name: str, *arguments: object) -> None:
    status = getattr(_library(), name)(*arguments)
    if status:
        text = ctypes.c_char_p()
        _library().cuGetErrorString(status, byref(text))
        said = text.value.decode() if text.value else "unknown error"
        raise RuntimeError(f"{name} failed: {said} ({status})")


@functools.cache
def _functions(device: int) -> dict[str, c_void_p]:
    """Every kernel's handle on a device, whose context torch has made current."""
    modules: dict[str, c_void_p] = {}
    for source, path in cubins().items():
        modules[source] = c_void_p()
        _call("cuModuleLoadData", byref(modules[source]), Path(path).read_bytes())
    out = {}
    for kernel in KERNELS:
        handle = c_void_p()
        _call("cuModuleGetFunction", byref(handle), modules[kernel.source], kernel.name.encode())
        if kernel.shared:
            _call("cuFuncSetAttribute", handle, c_int(MAX_DYNAMIC_SHARED), c_int(kernel.shared))
        out[kernel.name] = handle
    return out


@functools.cache
def _context(device: int) -> c_void_p:
    """torch's own context, the device's primary one; retained for the life of the process."""
    handle, ordinal = c_void_p(), c_int()
    _call("cuDeviceGet", byref(ordinal), c_int(device))
    _call("cuDevicePrimaryCtxRetain", byref(handle), ordinal)
    return handle


def enter(device: torch.device) -> None:
    """Make the device's context current: a thread of autograd's may not have one yet."""
    index = torch.cuda.current_device() if device.index is None else device.index
    _call("cuCtxSetCurrent", _context(index))


def prepare(device: torch.device) -> None:
    """Build and load everything now rather than at the first launch."""
    with torch.cuda.device(device):
        enter(device)
        _functions(torch.cuda.current_device())


def launch(kernel: Kernel, blocks: int, parameters: int, device: torch.device) -> None:
    """Launch on torch's current stream, with one argument: the structure at address `parameters`."""
    if not blocks:
        return
    with torch.cuda.device(device):
        stream = torch.cuda.current_stream(device).cuda_stream
        function = _functions(torch.cuda.current_device())[kernel.name]
        arguments = (c_void_p * 1)(parameters)
        one = c_uint(1)
        _call(
            "cuLaunchKernel",
            function,
            *(c_uint(blocks), one, one),
            *(c_uint(kernel.threads), one, one),
            c_uint(kernel.shared),
            c_void_p(stream),
            arguments,
            None,
        )


def _encode(
    to: TensorMap, tensor: Tensor, sizes: list[int], strides: list[int], box: list[int]
) -> None:
    width = tensor.element_size()
    _call(
        "cuTensorMapEncodeTiled",
        byref(to),
        c_int(BFLOAT16),
        c_uint32(4),
        c_void_p(tensor.data_ptr()),
        (c_uint64 * 4)(*sizes),
        (c_uint64 * 3)(*(stride * width for stride in strides)),
        (c_uint32 * 4)(*box),
        (c_uint32 * 4)(1, 1, 1, 1),
        c_int(0),
        c_int(SWIZZLE_128B),
        c_int(PROMOTE_256B),
        c_int(0),
    )


def map_rows(to: TensorMap, tensor: Tensor) -> None:
    """Boxes of 64 tokens by 64 channels over `[B, T, heads, channels]`."""
    batch, length, heads, channels = tensor.shape
    strides = [tensor.stride(axis) if tensor.shape[axis] > 1 else channels for axis in (2, 1, 0)]
    _encode(to, tensor, [channels, heads, length, batch], strides, [BOX, 1, BOX, 1])


def map_tiles(to: TensorMap, tensor: Tensor) -> None:
    """Boxes of 64 by 64 over contiguous `[chunk-heads, rows, columns]`."""
    count, rows, columns = tensor.shape
    strides = [columns, rows * columns, count * rows * columns]
    _encode(to, tensor, [columns, rows, count, 1], strides, [BOX, BOX, 1, 1])


def copyable(tensor: Tensor) -> bool:
    """Whether the copy engine can read it: channels contiguous, all else in steps of 16 bytes."""
    if tensor.stride(-1) != 1 or tensor.data_ptr() % 16:
        return False
    width = tensor.element_size()
    return all(
        size == 1 or (stride > 0 and stride * width % 16 == 0)
        for size, stride in zip(tensor.shape[:-1], tensor.stride()[:-1], strict=True)
    )
