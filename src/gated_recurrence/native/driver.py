"""The few calls of the CUDA driver that loading and launching take, through ctypes.

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
# Of CUtensorMapDataType, with the swizzle of such a box, and of CUtensorMapL2promotion.
KINDS = {torch.bfloat16: (9, 3), torch.float32: (7, 0)}  # 128 bytes; none
PROMOTION = 2
BOX = 64  # rows and columns of every box: in bfloat16, 128 bytes, the widest swizzle


PROGRAMMATIC_STREAM_SERIALIZATION = 6  # of CUlaunchAttributeID


class _Attribute(ctypes.Structure):
    """A CUlaunchAttribute whose value is one integer."""

    _fields_ = (("id", c_int), ("_pad", c_int), ("value", c_int), ("_rest", c_int * 15))


class _Configuration(ctypes.Structure):
    """A CUlaunchConfig."""

    _fields_ = (
        ("blocks", c_uint * 3),
        ("threads", c_uint * 3),
        ("shared", c_uint),
        ("stream", c_void_p),
        ("attributes", ctypes.POINTER(_Attribute)),
        ("attribute_count", c_uint),
    )


_OVERLAP = _Attribute(id=PROGRAMMATIC_STREAM_SERIALIZATION, value=1)


class TensorMap(ctypes.Structure):
    """A CUtensorMap."""

    _fields_ = (("words", c_uint64 * 16),)


@functools.cache
def _library() -> ctypes.CDLL:
    library = ctypes.CDLL("libcuda.so.1")
    library.cuLaunchKernelEx.argtypes = [c_void_p] * 4
    return library


def _check(name: str, status: int) -> None:
    if status:
        text = ctypes.c_char_p()
        _library().cuGetErrorString(status, byref(text))
        said = text.value.decode() if text.value else "unknown error"
        raise RuntimeError(f"{name} failed: {said} ({status})")


def _call(name: str, *arguments: object) -> None:
    _check(name, getattr(_library(), name)(*arguments))


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


def enter(device: torch.device) -> int:
    """Make the device's context current, which a thread of autograd's may not have yet.

    Returns torch's current stream there.
    """
    index = torch.cuda.current_device() if device.index is None else device.index
    _call("cuCtxSetCurrent", _context(index))
    return torch.cuda.current_stream(index).cuda_stream


def prepare(device: torch.device) -> None:
    """Build and load everything now rather than at the first launch."""
    enter(device)
    _functions(device.index or 0)


@functools.cache
def multiprocessors(device: torch.device) -> int:
    return torch.cuda.get_device_properties(device).multi_processor_count


def launch(kernel: Kernel, blocks: int, parameters: int, device: torch.device, stream: int) -> None:
    """Launch with one argument, the structure at address `parameters`, in the context entered."""
    if not blocks:
        return
    function = _functions(device.index or 0)[kernel.name]
    arguments = c_void_p(parameters)
    configuration = _Configuration(
        (blocks, 1, 1),
        (kernel.threads, 1, 1),
        kernel.shared,
        stream,
        ctypes.pointer(_OVERLAP),
        int(kernel.overlaps),
    )
    status = _library().cuLaunchKernelEx(byref(configuration), function, byref(arguments), None)
    _check("cuLaunchKernelEx", status)


@functools.lru_cache(maxsize=4096)
def _encode(
    address: int,
    sizes: tuple[int, ...],
    strides: tuple[int, ...],
    box: tuple[int, ...],
    dtype: torch.dtype = torch.bfloat16,
) -> TensorMap:
    """The map of a tensor with four axes, innermost first; strides in elements.

    A map is a pure function of these, and a training step meets the same addresses again and again.
    """
    kind, swizzle = KINDS[dtype]
    memory = ctypes.create_string_buffer(2 * ctypes.sizeof(TensorMap))
    aligned = ctypes.addressof(memory) + -ctypes.addressof(memory) % ctypes.sizeof(TensorMap)
    _call(
        "cuTensorMapEncodeTiled",
        c_void_p(aligned),
        c_int(kind),
        c_uint32(4),
        c_void_p(address),
        (c_uint64 * 4)(*sizes),
        (c_uint64 * 3)(*(stride * dtype.itemsize for stride in strides)),
        (c_uint32 * 4)(*box),
        (c_uint32 * 4)(1, 1, 1, 1),
        c_int(0),
        c_int(swizzle),
        c_int(PROMOTION),
        c_int(0),
    )
    return TensorMap.from_buffer_copy(ctypes.string_at(aligned, ctypes.sizeof(TensorMap)))


def map_rows(tensor: Tensor) -> TensorMap:
    """Boxes of 64 tokens by 64 channels over `[B, T, heads, channels]`."""
    batch, length, heads, channels = tensor.shape
    by_batch, by_token, by_head, _ = tensor.stride()
    strides = (
        by_head if heads > 1 else channels,
        by_token if length > 1 else channels,
        by_batch if batch > 1 else channels,
    )
    sizes = (channels, heads, length, batch)
    return _encode(tensor.data_ptr(), sizes, strides, (BOX, 1, BOX, 1), tensor.dtype)


def map_tiles(tensor: Tensor) -> TensorMap:
    """Boxes of 64 by 64 over contiguous `[chunk-heads, rows, columns]`."""
    count, rows, columns = tensor.shape
    strides = (columns, rows * columns, rows * columns)
    return _encode(tensor.data_ptr(), (columns, rows, count, 1), strides, (BOX, BOX, 1, 1))


def copyable(tensor: Tensor) -> bool:
    """Whether the copy engine can read it: channels contiguous, all else in steps of 16 bytes."""
    if tensor.is_contiguous():
        return tensor.data_ptr() % 16 == 0
    if tensor.stride(-1) != 1 or tensor.data_ptr() % 16:
        return False
    width = tensor.element_size()
    return all(
        size == 1 or (stride > 0 and stride * width % 16 == 0)
        for size, stride in zip(tensor.shape[:-1], tensor.stride()[:-1], strict=True)
    )
