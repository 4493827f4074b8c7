"""Checks of the arguments; every error names the argument."""

from __future__ import annotations

import itertools
from collections.abc import Mapping

import torch
from torch import Tensor
from torch.utils.weak import WeakTensorKeyDictionary

DTYPES = (torch.float64, torch.float32, torch.bfloat16, torch.float16)
GATES = ("g", "log_decay")


def check(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    extras: Mapping[str, tuple[Tensor, str]],
    initial_state: Tensor | None,
    cu_seqlens: Tensor | None,
    *,
    values: bool = True,
) -> list[int]:
    """Check one call and return its sequence bounds (`[0, T]` without `cu_seqlens`).

    `extras` maps a name to a tensor and its letters (`BTGK`: G for HV heads, H for H heads).
    `values` false leaves out `check_values`, which reads every tensor and waits for the answer.

    Raises:
        TypeError: not a tensor, or a dtype outside `DTYPES`.
        ValueError: a shape, device or value that the mathematics does not allow.
    """
    named = {"q": q, "k": k, "v": v, **{name: tensor for name, (tensor, _) in extras.items()}}
    if initial_state is not None:
        named["initial_state"] = initial_state
    check_tensors(named)
    for name in ("k", "v"):
        if named[name].dtype != q.dtype:
            raise TypeError(f"{name} has dtype {named[name].dtype} but q has {q.dtype}")
    for name in ("q", "v"):
        if named[name].ndim != 4:
            raise ValueError(f"{name} must have four axes, got shape {tuple(named[name].shape)}")
    batch, length, heads, key = q.shape
    value_heads, value = v.shape[2:]
    if min(heads, key, value_heads, value) < 1:
        raise ValueError("q and v must have at least one head and one channel")
    if value_heads % heads:
        raise ValueError(f"v has {value_heads} heads, not a multiple of q's {heads}")
    sizes = {"B": batch, "T": length, "H": heads, "G": value_heads, "K": key, "V": value}
    for name, tensor, letters in (
        ("k", k, "BTHK"),
        ("v", v, "BTGV"),
        *((n, t, s) for n, (t, s) in extras.items()),
    ):
        _shape(name, tensor, tuple(sizes[letter] for letter in letters))
    bounds = _bounds(cu_seqlens, q)
    if initial_state is not None:
        sequences = batch if cu_seqlens is None else len(bounds) - 1
        _shape("initial_state", initial_state, (sequences, value_heads, key, value))
    if values:
        check_values(named)
    return bounds


def check_tensors(named: Mapping[str, Tensor]) -> None:
    """Refuse what is no tensor of `DTYPES` on the device of `q`, which is one of them.

    Raises:
        TypeError: not a tensor, or another dtype.
        ValueError: another device.
    """
    for name, tensor in named.items():
        if not isinstance(tensor, Tensor):
            raise TypeError(f"{name} must be a tensor, got {type(tensor).__name__}")
        if tensor.dtype not in DTYPES:
            raise TypeError(f"{name} has dtype {tensor.dtype}; expected one of {DTYPES}")
        if tensor.device != named["q"].device:
            raise ValueError(f"{name} is on {tensor.device} but q is on {named['q'].device}")


def check_values(named: Mapping[str, Tensor | None], *, finite: bool = True) -> None:
    """Refuse what the portable path has no right answer for, by name: growth alone if not `finite`.

    While a CUDA graph is captured nothing can be read, and nothing is refused here: NaN and infinity
    go through the formulas, and a gate above zero grows the state.

    Raises:
        ValueError: NaN or infinity, or a gate above zero.
    """
    given = [tensor for tensor in named.values() if tensor is not None]
    if any(x.is_cuda for x in given) and torch.cuda.is_current_stream_capturing():
        return
    for name, tensor in named.items():
        if finite and tensor is not None and not bool(torch.isfinite(tensor).all()):
            raise ValueError(f"{name} holds NaN or infinity")
    for name in GATES:
        gate = named.get(name)
        if gate is not None and bool((gate > 0).any()):
            raise ValueError(f"{name} is a log decay and must not be above zero")


def _shape(name: str, tensor: Tensor, expected: tuple[int, ...]) -> None:
    if tuple(tensor.shape) != expected:
        raise ValueError(f"{name} has shape {tuple(tensor.shape)}, expected {expected}")


def _bounds(cu_seqlens: Tensor | None, q: Tensor) -> list[int]:
    batch, length = q.shape[:2]
    if cu_seqlens is None:
        return [0, length]
    if not isinstance(cu_seqlens, Tensor) or cu_seqlens.dtype not in (torch.int32, torch.int64):
        raise TypeError("cu_seqlens must be a tensor of int32 or int64")
    if cu_seqlens.device.type not in ("cpu", q.device.type):
        raise ValueError(f"cu_seqlens is on {cu_seqlens.device} but q is on {q.device}")
    if batch != 1:
        raise ValueError(f"cu_seqlens packs sequences into one row, but q has batch size {batch}")
    if cu_seqlens.ndim != 1 or cu_seqlens.numel() < 2:
        raise ValueError("cu_seqlens must have one axis and at least two entries")
    bounds = _read(cu_seqlens)
    if bounds[0] != 0 or bounds[-1] != length:
        raise ValueError(f"cu_seqlens must run from 0 to {length}, got {bounds[0]} to {bounds[-1]}")
    if any(after < before for before, after in itertools.pairwise(bounds)):
        raise ValueError("cu_seqlens must not decrease")
    return bounds


# Reading a tensor on a GPU waits for all that was launched before; a layer stack passes one to every
# layer, so what was read is kept for as long as the tensor lives unchanged.
_seen = WeakTensorKeyDictionary()


def _read(cu_seqlens: Tensor) -> list[int]:
    if cu_seqlens.is_inference():  # counts no versions
        return [int(bound) for bound in cu_seqlens.tolist()]
    if cu_seqlens not in _seen or _seen[cu_seqlens][0] != cu_seqlens._version:
        bounds = [int(bound) for bound in cu_seqlens.tolist()]
        _seen[cu_seqlens] = cu_seqlens._version, bounds
    return list(_seen[cu_seqlens][1])
