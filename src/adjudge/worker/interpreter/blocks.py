"""Blocks and their types without what Triton's front end does anew for each of them.

The compiler makes a block's type once for each operation of a program; the interpreter once for each
operation of each program instance, and half of an instance's time went there. Types are values, so one
for each element type and shape is enough.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import triton.language as tl
from triton.language.semantic import TritonSemantic
from triton.runtime import interpreter as stock

#: Types kept, and shapes; a candidate that uses more gets new ones each time.
MOST = 1 << 12
#: Where a shape that is kept has its sizes as plain numbers.
_SIZES = "adjudge.sizes"

_new_type = tl.block_type.__init__
_broadcast = TritonSemantic.broadcast_impl_value
#: The fields of a block's type by its element type and sizes.
_types: dict[Any, dict[str, Any]] = {}
#: By the sizes of a block: its shape as its type has it and as its tensors have it, and their number of
#: elements.
_shapes: dict[tuple[int, ...], tuple[Any, Any, Any]] = {}


def install() -> None:
    tl.block_type.__init__ = _block_type
    tl.tensor.__init__ = _tensor
    TritonSemantic.broadcast_impl_value = _broadcast_value
    builder = stock.interpreter_builder
    # Six operations for each sum, difference and product of integers, to feed an assertion that is
    # dropped unless kernels are debugged.
    if not builder.options.debug:
        builder.options = replace(builder.options, sanitize_overflow=False)


def _block_type(self: Any, element_ty: Any, shape: Any) -> None:
    key = _key(element_ty, shape)
    fields = _types.get(key)
    if fields is None:
        _new_type(self, element_ty, shape)
        if key is None or len(_types) >= MOST:
            return
        self.shape = _extents(key[-1])[0]
        _types[key] = fields = dict(vars(self))
    vars(self).update(fields)


def _key(element_ty: Any, shape: Any) -> tuple[Any, ...] | None:
    """What tells a type from others, its sizes last; None where the stock constructor has to look."""
    sizes = vars(shape).get(_SIZES) if type(shape) is tl.tuple else None
    if sizes is None:
        sizes = tuple([n.value if isinstance(n, tl.constexpr) else n for n in shape])
        # True and 2.0 are equal to sizes, and are none.
        if not all(type(n) is int for n in sizes):
            return None
    if type(element_ty) is tl.dtype:
        return element_ty.name, sizes
    if type(element_ty) is tl.pointer_type:
        return element_ty.name, element_ty.address_space, sizes
    return None


def _extents(sizes: tuple[int, ...]) -> tuple[Any, Any, Any]:
    known = _shapes.get(sizes)
    if known is None:
        shape = tl.tuple(sizes)
        vars(shape)[_SIZES] = sizes
        constants = tl.tuple([tl.constexpr(n) for n in sizes])
        known = shape, constants, tl.constexpr(math.prod(sizes))
        if len(_shapes) < MOST:
            _shapes[sizes] = known
    return known


def _tensor(self: Any, handle: Any, type: Any) -> None:
    self.handle = handle
    self.type = type
    self.dtype = type.scalar
    sizes = ()
    if type.is_block():
        sizes = vars(type.shape).get(_SIZES) or tuple(type.shape)
    _, self.shape, self.numel = _extents(sizes)


def _broadcast_value(self: Any, lhs: Any, rhs: Any) -> Any:
    one, other = lhs.type, rhs.type
    if one.is_block() and other.is_block() and one.shape is other.shape:
        return lhs, rhs
    return _broadcast(self, lhs, rhs)
