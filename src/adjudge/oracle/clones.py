"""Copies of modules, as `copy.deepcopy` makes them and several times as fast.

An oracle evaluates its reference dozens of times, each from the same state, and copies small modules
more slowly than it runs them: nearly all of a copy is empty tables of hooks.
"""

from __future__ import annotations

import copy
from collections import OrderedDict
from functools import cache
from typing import Any

import torch

_ATOMIC = frozenset((bool, int, float, complex, str, bytes, type(None), torch.dtype, torch.device))
#: What a class may copy itself by; one that has ways of its own is left to `copy.deepcopy`.
_WAYS = ("__deepcopy__", "__reduce__", "__reduce_ex__", "__getstate__", "__setstate__", "__slots__")

_CONVOLUTION = torch.nn.modules.conv._ConvNd


def clone(module: torch.nn.Module) -> torch.nn.Module:
    """A copy that shares nothing with the module that either could write to."""
    copied: torch.nn.Module = _copied(module, {})
    return copied


def _copied(value: Any, memo: dict[int, Any]) -> Any:
    kind: Any = type(value)
    if kind in _ATOMIC:
        return value
    if id(value) in memo:
        return memo[id(value)]
    if kind is dict or kind is OrderedDict:
        table = memo[id(value)] = kind()
        for key, item in value.items():
            table[_copied(key, memo)] = _copied(item, memo)
        return table
    if kind is set and not value:
        return set()
    if _is_plain(kind) and value.__dict__.get("_compiled_call_impl") is None:
        new = memo[id(value)] = object.__new__(kind)
        for name, item in value.__dict__.items():
            new.__dict__[name] = _copied(item, memo)
        return new
    return copy.deepcopy(value, memo)


@cache
def _is_plain(kind: Any) -> bool:
    # What convolutions do of their own completes a state that an older torch has written.
    plain = _CONVOLUTION if issubclass(kind, _CONVOLUTION) else torch.nn.Module
    return issubclass(kind, plain) and all(
        getattr(kind, way, None) is getattr(plain, way, None) for way in _WAYS
    )
