"""Arithmetic as a GPU does it, on numpy arrays. bfloat16 values travel as their bits in uint16.

What each function reproduces was recorded on an H200 with Triton 3.6.0: `tests/interpreter` holds the
record, and compares.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]

#: Smallest normal float32: approximate functions flush below it.
_TINY = np.float32(2.0**-126)
_LOG2_E = np.float32(1.4426950408889634)


def widen(bits: Array) -> Array:
    """bfloat16 bits to float32: exact."""
    return (bits.astype(np.uint32) << np.uint32(16)).view(np.float32)


def narrow(values: Array) -> Array:
    """float32 to bfloat16 bits, rounded to nearest even; a NaN stays a NaN."""
    raw = np.ascontiguousarray(values, dtype=np.float32).view(np.uint32)
    rounded = (raw + np.uint32(0x7FFF) + ((raw >> np.uint32(16)) & np.uint32(1))) >> np.uint32(16)
    return np.where(np.isnan(values), np.uint16(0x7FFF), rounded.astype(np.uint16))


#: The float8 formats of NVIDIA devices by Triton's names.
FLOAT8 = {"fp8e4nv": ml_dtypes.float8_e4m3fn, "fp8e5": ml_dtypes.float8_e5m2}
#: Their largest finite numbers.
LARGEST8 = {"fp8e4nv": 448.0, "fp8e5": 57344.0}


def widen8(bits: Array, name: str) -> Array:
    """float8 bits to float32: exact."""
    wide: Array = np.ascontiguousarray(bits).view(FLOAT8[name]).astype(np.float32)
    return wide


def narrow8(values: Array, name: str) -> Array:
    """float32 to float8 bits, rounded to nearest even. What is too large, infinities too, becomes the
    largest finite number, as `cvt.rn.satfinite` of PTX has it; a NaN stays one."""
    largest = LARGEST8[name]
    kept = np.clip(values.astype(np.float32), -largest, largest)
    bits = np.ascontiguousarray(kept.astype(FLOAT8[name])).view(np.uint8)
    return np.where(np.isnan(values), np.uint8(0x7F), bits)


def to_tf32(values: Array) -> Array:
    """float32 rounded to the 10 mantissa bits that a tf32 product keeps."""
    raw = np.ascontiguousarray(values, dtype=np.float32).view(np.uint32)
    rounded = (raw + np.uint32(0xFFF) + ((raw >> np.uint32(13)) & np.uint32(1))) & np.uint32(
        0xFFFFE000
    )
    return np.where(np.isfinite(values), rounded.view(np.float32), values)


def maxnum(a: Array, b: Array) -> Array:
    """IEEE maxNum: a NaN loses against a number; +0 wins against -0."""
    larger = np.fmax(a, b)
    tied = (a == b) & (larger == 0)
    return np.where(tied & ~(np.signbit(a) & np.signbit(b)), np.abs(larger), larger)


def minnum(a: Array, b: Array) -> Array:
    smaller = np.fmin(a, b)
    tied = (a == b) & (smaller == 0)
    return np.where(tied & (np.signbit(a) | np.signbit(b)), -np.abs(smaller), smaller)


def propagating(extreme: Callable[[Array, Array], Array]) -> Callable[[Array, Array], Array]:
    """The same where a NaN wins."""

    def call(a: Array, b: Array) -> Array:
        return np.where(np.isnan(a) | np.isnan(b), np.asarray(np.nan, a.dtype), extreme(a, b))

    return call


def remainder(a: Array, b: Array) -> Array:
    """`%` as the compiler expands it: a - b * trunc(a / b) with one rounding; a itself where b is
    infinite, even where a is too."""
    wide = a.astype(np.float32), b.astype(np.float32)
    quotient = np.trunc(wide[0] / wide[1]).astype(np.float64)
    out = (wide[0].astype(np.float64) - quotient * wide[1]).astype(np.float32)
    return np.where(np.isinf(b), a, out).astype(a.dtype)


def saturated(values: Array, dtype: np.dtype[Any]) -> Array:
    """Float to integer: saturates at the ends of the range, NaN becomes 0.

    There is no conversion to 8 bits: it saturates at 16 and drops the upper half. To 64 bits, NaN
    becomes the least number.
    """
    if dtype.itemsize == 1:
        wide_type = np.dtype(np.int16 if dtype.kind == "i" else np.uint16)
        return saturated(values, wide_type).astype(dtype)
    info = np.iinfo(dtype)
    # The upper bound is not representable in float: compare, do not clip.
    wide = values.astype(np.float64)
    with np.errstate(invalid="ignore"):
        out = np.nan_to_num(np.trunc(wide), nan=0.0, posinf=0.0, neginf=0.0).astype(dtype)
    out = np.where(wide >= float(info.max), info.max, out)
    out = np.where(wide <= float(info.min), info.min, out).astype(dtype)
    return np.where(np.isnan(wide), info.min, out) if dtype == np.int64 else out


def toward_zero(values: Array) -> Array:
    """float32 to float16, cut: what is finite and too large becomes the largest finite number."""
    rounded: Array = values.astype(np.float16)
    cut = np.nextafter(rounded, np.float16(0))
    return np.where(np.abs(rounded) > np.abs(values), cut, rounded)


def flushed(values: Array) -> Array:
    """float32 with subnormals as zeros of their sign."""
    if values.dtype != np.float32:
        return values
    return np.where(np.abs(values) < _TINY, np.copysign(np.float32(0), values), values)


def flushing(function: Callable[..., Array]) -> Callable[..., Array]:
    """A function whose subnormal operands count as zero."""
    return lambda *operands: function(*map(flushed, operands))


def exp(values: Array) -> Array:
    """The hardware has powers of two only: the product with log2(e) is rounded first."""
    if values.dtype != np.float32:
        return np.exp(values)
    return np.exp2((values * _LOG2_E).astype(np.float64)).astype(np.float32)


def exp2(values: Array) -> Array:
    return flushed(np.exp2(flushed(values)))


def without_sign(function: Callable[[Array], Array]) -> Callable[[Array], Array]:
    """A function that gives +0 at a subnormal of either sign."""

    def call(values: Array) -> Array:
        tiny = (np.abs(values) < _TINY) & (values != 0) & (values.dtype == np.float32)
        return np.where(tiny, np.zeros_like(values), function(values))

    return call


def by_torch(name: str) -> Callable[[Array], Array]:
    """Functions that numpy lacks, from torch, in the array's own precision."""

    def call(values: Array) -> Array:
        import torch

        function = getattr(torch.special, name)
        return np.asarray(function(torch.from_numpy(np.array(values, order="C"))).numpy())

    return call


def power(x: Array, y: Array) -> Array:
    """libdevice's pow, from the logarithm of the base: a subnormal has only its exponent, 2**-127."""
    tiny = (np.abs(x) < _TINY) & (x != 0) & (x.dtype == np.float32)
    base = np.where(tiny, np.copysign(np.float32(2.0**-127), x), x)
    return flushed(np.power(base, y))


def rsqrt(x: Array) -> Array:
    return (1 / np.sqrt(flushed(x))).astype(x.dtype)


def _away(x: Array) -> Array:
    """Half away from zero, as C's round."""
    whole = np.trunc(x)
    # The fraction is exact; adding one half to the number itself would round.
    out = whole + np.where(np.abs(x - whole) >= 0.5, np.copysign(1, x), 0)
    return np.where(np.isfinite(x), np.copysign(out, x), x).astype(x.dtype)


#: libdevice by its symbol without "__nv_" and the float suffix.
LIBDEVICE: dict[str, Callable[..., Array]] = {
    **{
        name: getattr(np, name)
        for name in (
            "exp log log2 log10 cbrt cos cosh trunc rint fmod copysign hypot isnan isfinite "
            "signbit ldexp nextafter".split()
        )
    },
    **{name: flushing(getattr(np, name)) for name in "sqrt sin tan sinh tanh floor ceil".split()},
    "exp2": exp2,
    "expm1": without_sign(np.expm1),
    "log1p": without_sign(np.log1p),
    "asin": np.arcsin,
    "acos": np.arccos,
    "atan": flushing(np.arctan),
    "atan2": np.arctan2,
    "asinh": np.arcsinh,
    "acosh": np.arccosh,
    "atanh": np.arctanh,
    "fabs": np.abs,
    "abs": np.abs,
    "llabs": np.abs,
    "fmax": np.fmax,
    "fmin": np.fmin,
    "max": np.maximum,
    "min": np.minimum,
    "pow": power,
    "powi": np.power,
    "fast_pow": np.power,
    "fast_exp": np.exp,
    "fast_log": np.log,
    "fast_log2": np.log2,
    "fast_sin": np.sin,
    "fast_cos": np.cos,
    "fast_tan": np.tan,
    "fast_tanh": np.tanh,
    "fast_fdivide": np.divide,
    "isinf": np.isinf,
    "finite": np.isfinite,
    "nearbyint": np.rint,
    "round": _away,
    "rsqrt": rsqrt,
    "rsqrt_rn": rsqrt,
    "sqrt_rn": np.sqrt,
    "rcp_rn": lambda x: (1 / x).astype(x.dtype),
    "fadd_rn": np.add,
    "add_rn": np.add,
    "fmul_rn": np.multiply,
    "mul_rn": np.multiply,
    "sub_rn": np.subtract,
    "div_rn": np.divide,
    "fdiv_rn": np.divide,
    "fma": lambda x, y, z: (x.astype(np.float64) * y + z).astype(x.dtype),
    "fma_rn": lambda x, y, z: (x.astype(np.float64) * y + z).astype(x.dtype),
    "saturate": lambda x: np.clip(np.nan_to_num(x, nan=0.0), 0, 1),
    "fdim": lambda x, y: np.where(x > y, x - y, 0).astype(x.dtype),
    "erf": flushing(by_torch("erf")),
    "erfc": by_torch("erfc"),
    "erfinv": by_torch("erfinv"),
    "lgamma": by_torch("gammaln"),
    "normcdf": by_torch("ndtr"),
    "exp10": lambda x: np.power(np.asarray(10, dtype=x.dtype), x),
    "sinpi": lambda x: np.sin(np.pi * x).astype(x.dtype),
    "cospi": lambda x: np.cos(np.pi * x).astype(x.dtype),
    "float2int_rn": lambda x: saturated(np.rint(x), np.dtype(np.int32)),
    "float2int_rz": lambda x: saturated(x, np.dtype(np.int32)),
}


def libdevice(symbol: str) -> Callable[..., Array] | None:
    """The function of a libdevice symbol ("__nv_tanhf"), or None."""
    name = symbol.removeprefix("__nv_")
    for form in (name, name.removesuffix("f"), name.removesuffix("d"), name.removeprefix("f")):
        if form in LIBDEVICE:
            return LIBDEVICE[form]
    return None
