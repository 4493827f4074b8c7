"""The judge's side of shared memory: lays tensors out between guards, and reads them back."""

from __future__ import annotations

import contextlib
import mmap
import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from adjudge import arrays
from adjudge.inputs.layouts import contiguous
from adjudge.observation import AccessFault, OutputTensor
from adjudge.worker.protocol import DISPLACED, FILL_BYTES, GUARD, aligned


@dataclass(frozen=True, slots=True, kw_only=True)
class TensorImage:
    """One tensor and how it lies in memory."""

    shape: tuple[int, ...]
    #: torch's name.
    dtype: str
    #: Strides and offset in elements.
    strides: tuple[int, ...]
    offset: int
    storage_elements: int
    #: C-contiguous values; elements that share memory hold equal values.
    values: npt.NDArray[Any]
    #: The storage holds elements that are not the tensor's; they get the guard's pattern.
    gaps: bool = False
    #: The storage is virtual: only the elements are touched.
    sparse: bool = False

    @staticmethod
    def plain(values: npt.NDArray[Any], dtype: str) -> TensorImage:
        strides = contiguous(values.shape)
        return TensorImage(
            shape=values.shape,
            dtype=dtype,
            strides=strides,
            offset=0,
            storage_elements=values.size,
            values=values,
        )


@dataclass(slots=True)
class _Placed:
    name: str
    image: TensorImage
    start: int
    nbytes: int


class Arena:
    """Shared memory for one run. Byte offsets are given out first, then everything is written."""

    def __init__(self, guard: str, *, displaced: bool = False) -> None:
        self._guard = FILL_BYTES[guard]
        self._placed: list[_Placed] = []
        self._end = GUARD + (DISPLACED if displaced else 0)
        self._map: mmap.mmap | None = None
        self._bytes: npt.NDArray[np.uint8] = np.empty(0, dtype=np.uint8)

    def tree(self, value: Any, path: str) -> Any:
        """`value` as JSON: tensors become references into this arena.

        Raises:
            TypeError: a leaf cannot be sent.
        """

        def leaf(where: str, item: Any) -> Any:
            if isinstance(item, torch.Tensor):
                item = TensorImage.plain(arrays.to_numpy(item), arrays.dtype_name(item.dtype))
            if isinstance(item, TensorImage):
                return {"tensor": self._place(where, item)}
            return {"value": _plain(item)}

        return _encode(value, leaf, path)

    def weights(self, state: Mapping[str, npt.NDArray[Any]]) -> list[dict[str, Any]]:
        rows = []
        for name, values in state.items():
            image = TensorImage.plain(values, values.dtype.name)
            rows.append({"name": name, **self._place(f"weight {name}", image)})
        return rows

    def _place(self, name: str, image: TensorImage) -> dict[str, Any]:
        itemsize = arrays.numpy_dtype(image.dtype).itemsize
        start = aligned(self._end)
        nbytes = image.storage_elements * itemsize
        self._placed.append(_Placed(name, image, start, nbytes))
        self._end = start + nbytes + GUARD
        return {
            "path": name,
            "start": start,
            "nbytes": nbytes,
            "dtype": image.dtype,
            "shape": list(image.shape),
            "strides": list(image.strides),
            "offset": image.offset,
        }

    def write(self) -> tuple[int, int]:
        """Creates the memory and fills it; its descriptor (the caller closes it) and its size."""
        fd = os.memfd_create("adjudge-inputs", os.MFD_CLOEXEC)
        size = aligned(self._end)
        os.ftruncate(fd, size)
        self._map = mmap.mmap(fd, size)
        self._bytes = np.frombuffer(self._map, dtype=np.uint8)
        for placed in self._placed:
            self._write_one(placed)
        return fd, size

    def _write_one(self, placed: _Placed) -> None:
        image, end = placed.image, placed.start + placed.nbytes
        if self._guard:
            self._bytes[placed.start - GUARD : placed.start] = self._guard
            self._bytes[end : end + GUARD] = self._guard
            if image.gaps and not image.sparse:
                self._bytes[placed.start : end] = self._guard
        if image.values.size:
            self._view(placed)[...] = image.values.reshape(image.shape)

    def _view(self, placed: _Placed) -> npt.NDArray[Any]:
        image = placed.image
        dtype = arrays.numpy_dtype(image.dtype)
        storage = self._bytes[placed.start : placed.start + placed.nbytes].view(dtype)
        return arrays.strided(storage[image.offset :], image.shape, image.strides)

    def mutated(self, reused: int | None = None) -> tuple[str, ...]:
        """Names of the observed call's tensors whose bytes are no longer what that call was given.

        Args:
            reused: the earlier call whose tensors the observed call was given, refilled; None if it
                had tensors of its own.
        """
        names = []
        given = {placed.name: placed for placed in self._placed}
        for name, placed in given.items():
            if name.startswith(("weight ", "init", "call ")) or not placed.image.values.size:
                continue
            held = placed if reused is None else given.get(f"call {reused} {name}", placed)
            now = np.ascontiguousarray(self._view(held))
            if now.tobytes() != placed.image.values.tobytes():
                names.append(name)
        return tuple(names)

    def output(self, name: str, path: str, device: str, reused: int | None = None) -> OutputTensor:
        """A tensor of the observed call as what the candidate has left in it.

        Args:
            reused: as for `mutated`.
        """
        given = {placed.name: placed for placed in self._placed}
        held = given[name] if reused is None else given[f"call {reused} {name}"]
        return OutputTensor(
            path=path,
            data=np.array(self._view(held), order="C", copy=True),
            dtype=held.image.dtype,
            strides=held.image.strides,
            device=device,
        )

    def guard_faults(self) -> tuple[AccessFault, ...]:
        """Guard zones whose bytes changed."""
        faults = []
        for placed in self._placed:
            end = placed.start + placed.nbytes
            before = self._bytes[placed.start - GUARD : placed.start] != self._guard
            after = self._bytes[end : end + GUARD] != self._guard
            if after.any():
                offset = int(np.flatnonzero(after)[0])
                faults.append(AccessFault(kind="guard", tensor=placed.name, offset=offset))
            elif before.any():
                offset = int(np.flatnonzero(before)[-1]) - GUARD
                faults.append(AccessFault(kind="guard", tensor=placed.name, offset=offset))
        return tuple(faults)

    def close(self) -> None:
        self._bytes = np.empty(0, dtype=np.uint8)
        if self._map is not None:
            # A view may still be on its way to collection; the mapping then goes with it.
            with contextlib.suppress(BufferError):
                self._map.close()


def _encode(value: Any, leaf: Any, path: str) -> Any:
    if isinstance(value, (tuple, list)):
        kind = "tuple" if isinstance(value, tuple) else "list"
        return {kind: [_encode(v, leaf, f"{path}[{i}]") for i, v in enumerate(value)]}
    if isinstance(value, Mapping):
        return {"dict": [[k, _encode(v, leaf, f"{path}[{k!r}]")] for k, v in value.items()]}
    return leaf(path, value)


def _plain(item: Any) -> Any:
    if item is None or isinstance(item, (bool, int, float, str)):
        return item
    if isinstance(item, torch.dtype):
        return {"dtype": arrays.dtype_name(item)}
    if isinstance(item, torch.device):
        return {"device": str(item)}
    if isinstance(item, slice):
        return {"slice": [item.start, item.stop, item.step]}
    raise TypeError(f"an argument of type {type(item).__name__} cannot be sent to a worker")
