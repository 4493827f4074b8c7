"""Every address against the extents of the tensor that its pointer came from."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import numpy.typing as npt

from adjudge.observation import AccessFault
from adjudge.worker.interpreter.session import MOST_FAULTS, current
from adjudge.worker.protocol import FILL_BYTES

#: Key in a handle's attributes: (first byte, past the last byte, name).
EXTENT = "adjudge.extent"


def extent_of(tensor: Any, name: str) -> tuple[int, int, str]:
    storage = tensor.untyped_storage()
    first = storage.data_ptr()
    return (first, first + storage.nbytes(), name)


def carried(source: Any, result: Any) -> Any:
    """`result`, knowing which tensor the pointers of `source` belong to."""
    extent = source.attr.get(EXTENT)
    if extent is not None:
        result.attr[EXTENT] = extent
    return result


def allowed(pointers: Any, mask: npt.NDArray[np.bool_], itemsize: int, kind: str) -> Any:
    """The lanes of `mask` whose address lies inside; the others are recorded as faults.

    Pointers that came out of memory belong to no known tensor and are let through.
    """
    extent = pointers.attr.get(EXTENT)
    if extent is None:
        return mask
    first, end, name = extent
    addresses = pointers.data
    inside = (addresses >= np.uint64(first)) & (addresses <= np.uint64(max(end - itemsize, 0)))
    outside = mask & ~inside
    if not outside.any():
        return mask
    if len(current.log.faults) < MOST_FAULTS:
        address = int(np.broadcast_to(addresses, outside.shape)[outside].flat[0])
        offset = address - end if address >= end else address - first
        if first <= address < end:
            offset = address + itemsize - end
        current.log.faults.append(
            AccessFault(
                kind=kind,
                tensor=name,
                offset=offset,
                kernel=current.kernel,
                line=line(),
                lanes=int(outside.sum()),
            )
        )
    return mask & inside


def name_of(pointers: Any) -> str:
    """The kernel's parameter that the pointers came from."""
    extent = pointers.attr.get(EXTENT)
    return extent[2] if extent is not None else ""


def line() -> int:
    """Line of the innermost frame that is neither ours nor triton's."""
    frame = sys._getframe(1)
    while frame is not None:
        path = frame.f_code.co_filename
        if "triton" not in path and "adjudge/worker" not in path and "adjudge\\worker" not in path:
            return frame.f_lineno
        if frame.f_back is None:
            return 0
        frame = frame.f_back
    return 0


def pattern(fill: str, shape: tuple[int, ...], dtype: np.dtype[Any]) -> npt.NDArray[Any]:
    """An array of the fill's byte pattern."""
    value = np.frombuffer(bytes([FILL_BYTES[fill]]) * dtype.itemsize, dtype=np.uint8)
    if dtype == np.bool_:
        return np.zeros(shape, dtype=bool)
    return np.full(shape, value.view(dtype)[0], dtype=dtype)
