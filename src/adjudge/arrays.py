"""Between torch tensors and numpy arrays, for every dtype a kernel may use.

numpy has no bfloat16 or float8 of its own; ml_dtypes supplies them, and bits are never converted.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt
import torch

_EXTRA = {
    "bfloat16": ml_dtypes.bfloat16,
    "float8_e4m3fn": ml_dtypes.float8_e4m3fn,
    "float8_e5m2": ml_dtypes.float8_e5m2,
}
_UNLETTERED = frozenset(np.dtype(dtype) for dtype in _EXTRA.values())
_CARRIER = {1: torch.uint8, 2: torch.int16}


@cache
def numpy_dtype(name: str) -> np.dtype[Any]:
    """The numpy dtype for torch's name of a dtype ("float32", "bfloat16", "bool").

    Raises:
        TypeError: numpy has no such dtype.
    """
    return np.dtype(_EXTRA.get(name, name))  # type: ignore[no-any-return]


def torch_dtype(name: str) -> torch.dtype:
    """The torch dtype of that name.

    Raises:
        TypeError: torch has no such dtype.
    """
    found = getattr(torch, name, None)
    if not isinstance(found, torch.dtype):
        raise TypeError(f"torch has no dtype {name!r}")
    return found


def dtype_name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def computable(tensor: torch.Tensor) -> torch.Tensor:
    """The values in a dtype that torch computes in: it only stores and casts eight-bit floats."""
    return tensor.float() if is_stored_float(tensor) else tensor


def is_stored_float(tensor: torch.Tensor) -> bool:
    """Whether the tensor holds floats of eight bits: data that are widened before use."""
    return tensor.is_floating_point() and tensor.element_size() == 1


def to_numpy(tensor: torch.Tensor) -> npt.NDArray[Any]:
    """The tensor's values as a C-contiguous array of the same bits; shares memory where it can."""
    tensor = tensor.detach().cpu().contiguous().resolve_conj().resolve_neg()
    name = dtype_name(tensor.dtype)
    if name in _EXTRA:
        raw = tensor.view(_CARRIER[tensor.element_size()]).numpy()
        return raw.view(numpy_dtype(name))
    return tensor.numpy()


def from_numpy(array: npt.NDArray[Any], name: str) -> torch.Tensor:
    """A tensor of torch dtype `name` with a copy of the array's bits."""
    array = np.array(array, order="C", copy=True)
    if name in _EXTRA:
        size = numpy_dtype(name).itemsize
        raw = array.view(np.uint8 if size == 1 else np.int16)
        return torch.from_numpy(raw).view(torch_dtype(name))
    return torch.from_numpy(array)


def strided(
    storage: npt.NDArray[Any], shape: tuple[int, ...], strides: tuple[int, ...]
) -> npt.NDArray[Any]:
    """A writable view of a flat storage; strides in elements."""
    dtype = storage.dtype
    # numpy makes no such view of a dtype that it does not know by its letter (float8_e5m2): its bits.
    bits = storage.view(f"u{dtype.itemsize}") if dtype in _UNLETTERED else storage
    steps = tuple(step * dtype.itemsize for step in strides)
    found = np.lib.stride_tricks.as_strided(bits, shape, steps, writeable=True)
    return found.view(dtype)


def map_leaves(value: Any, leaf: Callable[[str, Any], Any], path: str = "") -> Any:
    """`value` with every leaf replaced by `leaf(path, value)`; tuples, lists and dicts are kept.

    Paths read as Python does: "[0]", "['mask'][1]".
    """
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*(map_leaves(v, leaf, f"{path}[{i}]") for i, v in enumerate(value)))
    if isinstance(value, (tuple, list)):
        return type(value)(map_leaves(v, leaf, f"{path}[{i}]") for i, v in enumerate(value))
    if isinstance(value, dict):
        return {k: map_leaves(v, leaf, f"{path}[{k!r}]") for k, v in value.items()}
    return leaf(path, value)


def tensors_in(value: Any, path: str = "") -> list[tuple[str, torch.Tensor]]:
    """The (path, tensor) pairs of a tree, in order."""
    found: list[tuple[str, torch.Tensor]] = []

    def keep(where: str, item: Any) -> Any:
        if isinstance(item, torch.Tensor):
            found.append((where, item))
        return item

    map_leaves(value, keep, path)
    return found
