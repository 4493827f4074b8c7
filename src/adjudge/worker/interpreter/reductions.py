"""Reductions and scans: NaN-dropping extremes, half-precision trees, user functions by halves."""

from __future__ import annotations

from typing import Any

import numpy as np
import triton.language as tl
from triton.runtime import interpreter as stock

from adjudge.worker.interpreter import arithmetic
from adjudge.worker.interpreter.session import current


def install() -> None:
    stock.ReduceOps.apply_impl = _reduce
    stock.ReduceOps.generic_reduce = _generic_reduce
    stock.ScanOps.generic_scan = _generic_scan
    stock.ScanOps.cumsum = _running(np.cumsum)
    stock.ScanOps.cumprod = _running(np.cumprod)


def _is_bf16(tensor: Any) -> bool:
    return bool(tensor.dtype.scalar == tl.bfloat16)


def _reduce(self: Any, inputs: Any) -> Any:
    first = inputs[0]
    standard = tl.standard
    combine = self.combine_fn
    if combine in (standard._elementwise_max, standard._elementwise_min):
        op = np.fmax if combine == standard._elementwise_max else np.fmin
        if not first.dtype.is_floating():
            op = np.maximum if op is np.fmax else np.minimum  # type: ignore[assignment]
        return _by_ufunc(self, first, op)
    if combine == standard._sum_combine:
        if first.dtype.scalar in (tl.float16, tl.bfloat16):
            return self.generic_reduce(inputs)
        return _sum(self, first)
    if combine == standard._argmax_combine_tie_break_left and not _is_bf16(first):
        return _extreme(self, first, np.max, np.argmax, -np.inf)
    if combine == standard._argmin_combine_tie_break_left and not _is_bf16(first):
        return _extreme(self, first, np.min, np.argmin, np.inf)
    return self.generic_reduce(inputs)


def _held(tensor: Any) -> Any:
    """numpy's type for what the tensor is: truth values that were converted to int32 may still lie as
    truth values, whose sum would be one."""
    return stock._get_np_dtype(tensor.dtype.scalar)


def _sum(self: Any, tensor: Any) -> Any:
    """numpy starts from +0, a GPU from the first element: a sum of nothing but -0 is -0. Left to itself
    numpy widens integers too, and they would not wrap."""
    data = tensor.handle.data
    with np.errstate(all="ignore"):
        out = np.sum(data, axis=self.axis, keepdims=self.keep_dims, dtype=_held(tensor))
    if data.dtype.kind == "f" and not np.all(out):
        negative = np.all((data == 0) & np.signbit(data), axis=self.axis, keepdims=self.keep_dims)
        out = np.where(negative, np.asarray(-0.0, data.dtype), out)
    return self.to_tensor(out, tensor.dtype)


def _extreme(self: Any, tensor: Any, value: Any, index: Any, least: float) -> Any:
    """Value and index, the leftmost of equal ones; a NaN loses every comparison. Which of equal ones a
    GPU finds beside a NaN depends on the layout of the block: such a run is not judged."""
    data = tensor.handle.data
    lost = np.isnan(data) if data.dtype.kind == "f" else np.zeros(data.shape, dtype=bool)
    if lost.any():
        data = np.where(lost, np.asarray(least, data.dtype), data)
        extremes = (data == value(data, axis=self.axis, keepdims=True)) & ~lost
        equal = extremes.sum(axis=self.axis) > 1
        if (equal & lost.any(axis=self.axis)).any():
            current.log.unsupported.append("which of equal extremes a GPU finds beside a NaN")
    found = value(data, axis=self.axis, keepdims=self.keep_dims)
    place = index(data, axis=self.axis, keepdims=self.keep_dims)
    return self.to_tensor(found, tensor.dtype), self.to_tensor(place, tl.int32)


def _by_ufunc(self: Any, tensor: Any, op: Any) -> Any:
    data = tensor.handle.data
    bf16 = _is_bf16(tensor)
    values = arithmetic.widen(data) if bf16 else data
    out = op.reduce(values, axis=self.axis, keepdims=self.keep_dims)
    if bf16:
        out = arithmetic.narrow(np.asarray(out))
    return self.to_tensor(out, tensor.dtype)


def _combined(self: Any, left: list[Any], right: list[Any], inputs: Any) -> list[Any]:
    """The user's function on two lists of arrays. Triton's blocks have powers of two as sides, so the
    leading side is filled up with copies of the last element, and cut back."""
    length = left[0].shape[0]
    size = 1 << (length - 1).bit_length()
    filled = [np.concatenate([a, np.repeat(a[-1:], size - length, axis=0)]) for a in left + right]
    args = [self.to_tensor(a, t.dtype) for a, t in zip(filled, [*inputs, *inputs], strict=True)]
    out = self.combine_fn.fn(*args)
    out = out if isinstance(out, (tuple, list)) else (out,)
    return [
        np.asarray(o.handle.data).reshape(a.shape)[:length].astype(a.dtype)
        for o, a in zip(out, filled, strict=False)
    ]


def _generic_reduce(self: Any, inputs: Any) -> Any:
    """Neighbours are combined in pairs, so that an associative function sees its order kept."""
    original = self.axis
    tensors, axis = self.unravel(inputs, self.axis)
    arrays = [np.moveaxis(t.handle.data, axis, 0) for t in tensors]
    while arrays[0].shape[0] > 1:
        even = arrays[0].shape[0] // 2 * 2
        merged = _combined(
            self, [a[0:even:2] for a in arrays], [a[1:even:2] for a in arrays], tensors
        )
        rest = [a[even:] for a in arrays]
        arrays = [np.concatenate([m, r]) for m, r in zip(merged, rest, strict=True)]
    out = []
    for array, tensor, given in zip(arrays, tensors, inputs, strict=True):
        data = array[0]
        if self.keep_dims:
            shape = given.handle.data.shape
            data = (
                data.reshape([1] * len(shape)) if original is None else np.expand_dims(data, axis)
            )
        elif original is None:
            data = data.item()
        out.append(self.to_tensor(data, tensor.dtype))
    return out


def _generic_scan(self: Any, inputs: Any) -> Any:
    """Hillis and Steele's scan: each step combines with the element 1, 2, 4, ... before."""
    arrays = [np.moveaxis(t.handle.data, self.axis, 0).copy() for t in inputs]
    step = 1
    while step < arrays[0].shape[0]:
        merged = _combined(self, [a[:-step] for a in arrays], [a[step:] for a in arrays], inputs)
        arrays = [np.concatenate([a[:step], m]) for a, m in zip(arrays, merged, strict=True)]
        step *= 2
    return [
        self.to_tensor(np.moveaxis(a, 0, self.axis), t.dtype)
        for a, t in zip(arrays, inputs, strict=True)
    ]


def _running(op: Any) -> Any:
    def run(self: Any, tensor: Any) -> list[Any]:
        data = tensor.handle.data
        if _is_bf16(tensor):
            return [
                self.to_tensor(
                    arithmetic.narrow(op(arithmetic.widen(data), axis=self.axis)), tensor.dtype
                )
            ]
        return [self.to_tensor(op(data, axis=self.axis, dtype=_held(tensor)), dtype=tensor.dtype)]

    return run
