"""Replaces the operations of Triton's interpreter that differ from a GPU's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import triton.language as tl
from triton._C.libtriton import interpreter as _memory
from triton._C.libtriton import ir
from triton.language.semantic import TritonSemantic
from triton.runtime import interpreter as stock

from adjudge.worker.interpreter import arithmetic
from adjudge.worker.interpreter.addresses import allowed, carried, line, name_of, pattern
from adjudge.worker.interpreter.session import Unsupported, current

Handle = stock.TensorHandle


def _is_bf16(handle: Any) -> bool:
    return bool(handle.dtype.scalar == tl.bfloat16)


def _values(handle: Any) -> Any:
    return arithmetic.widen(handle.data) if _is_bf16(handle) else handle.data


def _result(values: Any, dtype: Any) -> Any:
    """A handle of `dtype`, rounded where the storage is narrower than the arithmetic."""
    if dtype == tl.bfloat16:
        return Handle(arithmetic.narrow(values), dtype)
    wanted = stock._get_np_dtype(dtype)
    return Handle(values if values.dtype == wanted else values.astype(wanted), dtype)


def _binary(op: Callable[[Any, Any], Any]) -> Callable[..., Any]:
    def run(self: Any, lhs: Any, rhs: Any) -> Any:
        with np.errstate(all="ignore"):
            return _result(np.asarray(op(_values(lhs), _values(rhs))), lhs.dtype.scalar)

    return run


def _compare(op: Callable[[Any, Any], Any]) -> Callable[..., Any]:
    def run(self: Any, lhs: Any, rhs: Any) -> Any:
        return Handle(np.asarray(op(_values(lhs), _values(rhs))), tl.int1)

    return run


def _unary(op: Callable[[Any], Any]) -> Callable[..., Any]:
    def run(self: Any, arg: Any) -> Any:
        with np.errstate(all="ignore"):
            return _result(np.asarray(op(_values(arg))), arg.dtype.scalar)

    return run


def _unordered(op: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    return lambda a, b: op(a, b) | np.isnan(a) | np.isnan(b)


def _clamp(self: Any, arg: Any, low: Any, high: Any, propagate_nans: Any) -> Any:
    x, lo, hi = _values(arg), _values(low), _values(high)
    out = arithmetic.minnum(arithmetic.maxnum(x, lo), hi)
    if propagate_nans == ir.PROPAGATE_NAN.ALL:
        out = np.where(np.isnan(x), x, out)
    return _result(out, arg.dtype.scalar)


def _cast(self: Any, src: Any, dst_type: Any) -> Any:
    source, target = src.dtype.scalar, dst_type.scalar
    if source == target:
        return Handle(src.data, target)
    values = _values(src)
    if target == tl.bfloat16:
        return Handle(arithmetic.narrow(values.astype(np.float32)), target)
    dtype = stock._get_np_dtype(dst_type)
    if source.is_floating() and target.is_int() and target != tl.int1:
        return Handle(arithmetic.saturated(values, dtype), target)
    with np.errstate(all="ignore"):
        return Handle(values.astype(dtype), target)


_stock_fp_to_fp = stock.InterpreterBuilder.create_fp_to_fp


def _fp_to_fp(self: Any, src: Any, dst_type: Any, rounding: Any) -> Any:
    wide = {tl.bfloat16, tl.float16, tl.float32, tl.float64}
    if {src.dtype.scalar, dst_type.scalar} <= wide:
        if rounding == ir.ROUNDING_MODE.RTZ and dst_type.scalar == tl.bfloat16:
            raw = src.data.astype(np.float32).view(np.uint32) >> np.uint32(16)
            return Handle(raw.astype(np.uint16), tl.bfloat16)
        if rounding == ir.ROUNDING_MODE.RTZ and dst_type.scalar == tl.float16:
            with np.errstate(all="ignore"):
                cut = arithmetic.toward_zero(_values(src).astype(np.float32))
            return Handle(cut, tl.float16)
        return _cast(self, src, dst_type)
    source, target = str(src.dtype.scalar), str(dst_type.scalar)
    if source in arithmetic.FLOAT8:
        values = Handle(arithmetic.widen8(src.data, source), tl.float32)
        return _fp_to_fp(self, values, dst_type, rounding)
    if target in arithmetic.FLOAT8 and rounding != ir.ROUNDING_MODE.RTZ:
        return Handle(arithmetic.narrow8(_values(src), target), dst_type.scalar)
    return _stock_fp_to_fp(self, src, dst_type, rounding)


def _dot(self: Any, a: Any, b: Any, d: Any, input_precision: Any, max_imprecise: Any) -> Any:
    left, right = _values(a), _values(b)
    if a.dtype.scalar.is_fp8() or b.dtype.scalar.is_fp8():
        raise Unsupported("tl.dot of float8 operands")
    if left.dtype == np.float32 and input_precision == ir.INPUT_PRECISION.TF32 and not _is_bf16(a):
        left, right = arithmetic.to_tf32(left), arithmetic.to_tf32(right)
    total = d.dtype.scalar
    compute = np.float64 if total == tl.float64 else np.float32
    if total.is_int():
        compute = np.int32  # type: ignore[assignment]
    with np.errstate(all="ignore"):
        out = np.matmul(left.astype(compute), right.astype(compute)) + _values(d)
    return _result(out.astype(compute), total)


def _masked_load(
    self: Any, ptrs: Any, mask: Any, other: Any, cache: Any, eviction: Any, volatile: Any
) -> Any:
    element = ptrs.get_element_ty()
    dtype = stock._get_np_dtype(element)
    lanes = np.broadcast_to(_mask(mask), ptrs.data.shape)
    inside = allowed(ptrs, lanes, dtype.itemsize, "load")
    if other is None and current.other_given:
        held = np.zeros(ptrs.data.shape, dtype=dtype)
    elif other is None:
        held = pattern(current.options.fill, ptrs.data.shape, dtype)
    else:
        held = np.array(np.broadcast_to(other.data, ptrs.data.shape), dtype=dtype)
    outside = lanes & ~inside
    if outside.any():
        held = np.where(outside, pattern(current.options.guard, ptrs.data.shape, dtype), held)
    pointers = np.ascontiguousarray(ptrs.data)
    loaded = _memory.load(pointers, np.ascontiguousarray(inside), np.ascontiguousarray(held), dtype)
    if current.recorder is not None:
        loaded = current.recorder.loaded(pointers, inside, loaded, name_of(ptrs), line())
    return Handle(loaded, element)


def _noting_other(original: Any) -> Any:
    """Triton asks `other` for its truth, and the interpreter gives a one-element tensor the truth of
    its value: `other=0.0` is lost for scalars and blocks of one element."""

    def load(self: Any, ptr: Any, mask: Any, other: Any, *rest: Any) -> Any:
        current.other_given = other is not None
        try:
            return original(self, ptr, mask, other, *rest)
        finally:
            current.other_given = False

    return load


def _masked_store(self: Any, ptrs: Any, value: Any, mask: Any, cache: Any, eviction: Any) -> Any:
    itemsize = value.data.dtype.itemsize
    lanes = np.broadcast_to(_mask(mask), ptrs.data.shape)
    inside = allowed(ptrs, lanes, itemsize, "store")
    data = np.ascontiguousarray(np.broadcast_to(value.data, ptrs.data.shape))
    pointers = np.ascontiguousarray(ptrs.data)
    if current.recorder is not None:
        current.recorder.storing(pointers, inside, data.dtype, name_of(ptrs), line())
    return _memory.store(pointers, data, np.ascontiguousarray(inside))


def _mask(mask: Any) -> Any:
    """Block pointers hand over a bare array, everything else a handle."""
    return np.asarray(getattr(mask, "data", mask) if not isinstance(mask, np.ndarray) else mask)


_stock_rmw = stock.InterpreterBuilder.create_atomic_rmw
_stock_cas = stock.InterpreterBuilder.create_atomic_cas
_stock_umulhi = stock.InterpreterBuilder.create_umulhi


def _atomic_rmw(self: Any, op: Any, ptr: Any, val: Any, mask: Any, sem: Any, scope: Any) -> Any:
    lanes = np.broadcast_to(_mask(mask), ptr.data.shape)
    inside = allowed(ptr, lanes, val.data.dtype.itemsize, "atomic")
    if _is_bf16(val):
        raise Unsupported("atomics on bfloat16")
    data = np.ascontiguousarray(np.broadcast_to(val.data, ptr.data.shape))
    pointers = np.ascontiguousarray(ptr.data)
    if current.recorder is not None:
        current.recorder.atomic(pointers, inside, data.dtype, _orders(sem))
    adds = op == ir.ATOMIC_OP.FADD and data.dtype == np.float32
    if adds:
        # The memory's adder knows no subnormals, but hands back what was there.
        data = arithmetic.flushed(data)
        held = _memory.load(pointers, np.ascontiguousarray(inside), np.zeros_like(data), data.dtype)
        _memory.store(pointers, arithmetic.flushed(held), np.ascontiguousarray(inside))
    kind = data.dtype
    if op == ir.ATOMIC_OP.XCHG and kind.kind == "f":
        data = data.view(f"i{kind.itemsize}")
    checked = Handle(np.ascontiguousarray(inside), tl.int1)
    dtype = val.dtype if data.dtype == kind else tl.core.get_int_dtype(kind.itemsize * 8, True)
    out = _stock_rmw(
        self, op, Handle(pointers, ptr.dtype), Handle(data, dtype), checked, sem, scope
    )
    old = out.data.view(kind)
    return Handle(np.where(old == 0, held, old) if adds else old, val.dtype.scalar)


def _orders(sem: Any) -> bool:
    """Whether an atomic orders the accesses around it."""
    return bool(sem != ir.MEM_SEMANTIC.RELAXED)


def _umulhi(self: Any, lhs: Any, rhs: Any) -> Any:
    size = lhs.data.dtype.itemsize
    if size == 8:
        return _stock_umulhi(self, lhs, rhs)
    # Unsigned, whatever the operands' own type says.
    a, b = (h.data.view(f"u{size}").astype(f"u{2 * size}") for h in (lhs, rhs))
    high = ((a * b) >> np.asarray(8 * size, a.dtype)).astype(f"u{size}")
    return Handle(high.view(lhs.data.dtype), lhs.dtype.scalar)


def _float_atomic_min(original: Any) -> Any:
    def run(self: Any, ptr: Any, val: Any, *rest: Any) -> Any:
        if val.type.scalar.is_floating():
            # Triton 3.6.0 mislabels the type of the result, which only its compiler overlooks.
            raise Unsupported("tl.atomic_min on floats")
        return original(self, ptr, val, *rest)

    return run


def _atomic_cas(self: Any, ptr: Any, cmp: Any, val: Any, sem: Any, scope: Any) -> Any:
    lanes = np.ones(ptr.data.shape, dtype=bool)
    if not allowed(ptr, lanes, val.data.dtype.itemsize, "atomic").all():
        return Handle(np.zeros_like(cmp.data), cmp.dtype.scalar)
    if current.recorder is not None:
        current.recorder.atomic(ptr.data, lanes, cmp.data.dtype, _orders(sem))
    return _stock_cas(self, ptr, cmp, val, sem, scope)


def _extern(
    self: Any, lib: Any, path: Any, symbol: str, arguments: Any, result: Any, pure: Any
) -> Any:
    function = arithmetic.libdevice(symbol)
    if function is None:
        raise Unsupported(f"libdevice function {symbol}")
    with np.errstate(all="ignore"):
        out = np.asarray(function(*(_values(argument) for argument in arguments)))
    return _result(out, result.scalar)


def _inline_asm(self: Any, *arguments: Any) -> Any:
    raise Unsupported("inline assembly")


def _print(self: Any, prefix: Any, hexadecimal: Any, values: Any, signed: Any) -> None:
    """Device prints are dropped: thousands of instances would flood the captured output."""


def _carrying(name: str, pointer: int = 0) -> Callable[..., Any]:
    original = getattr(stock.InterpreterBuilder, name)

    def run(self: Any, *arguments: Any, **keywords: Any) -> Any:
        result = original(self, *arguments, **keywords)
        source = arguments[pointer]
        return carried(source, result) if source.attr else result

    return run


def _all_ones(self: Any, kind: Any) -> Any:
    dtype = stock._get_np_dtype(kind)
    # -1 is no value of an unsigned type.
    return Handle(np.asarray([-1]).astype(dtype), kind.scalar)


def _bf16(self: Any, value: float) -> Any:
    """A constant; the stock builder has none of this type, so that `x * 0.5` fails."""
    return Handle(arithmetic.narrow(np.asarray([value], dtype=np.float32)), tl.bfloat16)


def _fma(self: Any, x: Any, y: Any, z: Any) -> Any:
    with np.errstate(all="ignore"):
        wide = _values(x).astype(np.float64) * _values(y) + _values(z)
        return _result(wide, z.dtype.scalar)


def _select(self: Any, condition: Any, lhs: Any, rhs: Any) -> Any:
    out = Handle(np.where(condition.data, lhs.data, rhs.data), lhs.dtype.scalar)
    return carried(lhs, carried(rhs, out))


_ARITHMETIC = {
    "create_fadd": np.add,
    "create_fsub": np.subtract,
    "create_fmul": np.multiply,
    "create_fdiv": np.divide,
    "create_precise_divf": np.divide,
    "create_frem": arithmetic.remainder,
    "create_minimumf": arithmetic.propagating(arithmetic.minnum),
    "create_maximumf": arithmetic.propagating(arithmetic.maxnum),
    "create_minnumf": arithmetic.minnum,
    "create_maxnumf": arithmetic.maxnum,
}
_COMPARISONS = {
    "create_fcmpOLT": np.less,
    "create_fcmpOGT": np.greater,
    "create_fcmpOLE": np.less_equal,
    "create_fcmpOGE": np.greater_equal,
    "create_fcmpOEQ": np.equal,
    "create_fcmpONE": lambda a, b: (a < b) | (a > b),
    "create_fcmpULT": _unordered(np.less),
    "create_fcmpUGT": _unordered(np.greater),
    "create_fcmpULE": _unordered(np.less_equal),
    "create_fcmpUGE": _unordered(np.greater_equal),
    "create_fcmpUEQ": _unordered(np.equal),
    "create_fcmpUNE": np.not_equal,
}
_FUNCTIONS = {
    "create_exp": arithmetic.exp,
    "create_exp2": arithmetic.exp2,
    "create_log": np.log,
    "create_log2": np.log2,
    "create_sin": arithmetic.flushing(np.sin),
    "create_cos": np.cos,
    "create_floor": arithmetic.flushing(np.floor),
    "create_ceil": arithmetic.flushing(np.ceil),
    "create_sqrt": arithmetic.flushing(np.sqrt),
    "create_precise_sqrt": np.sqrt,
    "create_rsqrt": arithmetic.rsqrt,
    "create_erf": arithmetic.flushing(arithmetic.by_torch("erf")),
}
_POINTER_CARRIERS = (
    "create_addptr",
    "create_broadcast",
    "create_expand_dims",
    "create_reshape",
    "create_trans",
    "create_bitcast",
    "create_int_to_ptr",
    "create_ptr_to_int",
    "create_unsplat",
)


def _remembered(original: Any) -> Any:
    """The stock look-up builds its table anew each time: a tenth of an instance's time."""
    known: dict[str, Any] = {}

    def lookup(dtype: Any) -> Any:
        name = dtype.scalar.name
        if name not in known:
            known[name] = original(dtype)
        return known[name]

    return lookup


def install() -> None:
    """Puts the faithful operations in place of the stock ones, for this process."""
    TritonSemantic._load_legacy = _noting_other(TritonSemantic._load_legacy)
    stock._get_np_dtype = _remembered(stock._get_np_dtype)
    target = stock.InterpreterBuilder
    for name in _POINTER_CARRIERS:
        setattr(target, name, _carrying(name))
    target.create_splat = _carrying("create_splat", pointer=1)
    for name, op in _ARITHMETIC.items():
        setattr(target, name, _binary(op))  # type: ignore[arg-type]
    for name, op in _COMPARISONS.items():
        setattr(target, name, _compare(op))  # type: ignore[arg-type]
    for name, function in _FUNCTIONS.items():
        setattr(target, name, _unary(function))  # type: ignore[arg-type]
    for name in ("si_to_fp", "ui_to_fp", "fp_to_si", "fp_to_ui", "fp_ext", "fp_trunc"):
        setattr(target, f"create_{name}", _cast)
    target.create_int_cast = lambda self, src, dst, signed: _cast(self, src, dst)
    target.cast_impl = _cast
    target.create_fp_to_fp = _fp_to_fp
    target.create_clampf = _clamp
    target.create_select = _select
    target.create_fma = _fma
    target.create_dot = _dot
    target.create_masked_load = _masked_load
    target.create_masked_store = _masked_store
    target.create_atomic_rmw = _atomic_rmw
    target.create_atomic_cas = _atomic_cas
    target.create_umulhi = _umulhi
    TritonSemantic.atomic_min = _float_atomic_min(TritonSemantic.atomic_min)
    target.create_extern_elementwise = _extern
    target.get_bf16 = _bf16
    target.get_all_ones_value = _all_ones
    target.create_inline_asm = _inline_asm
    target.create_print = _print
    for handle in (stock.BlockPointerHandle, stock.TensorDescHandle):
        handle.materialize_pointers = _materialized(handle.materialize_pointers)


def _materialized(original: Callable[..., Any]) -> Callable[..., Any]:
    def run(self: Any, *arguments: Any, **keywords: Any) -> Any:
        pointers, masks = original(self, *arguments, **keywords)
        return carried(self.base, pointers), masks

    return run
