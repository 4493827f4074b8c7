"""The error that an honest implementation may add at each primitive op.

Coefficients are in unit roundoffs, from the accuracy that CUDA and Triton document for the function
on a device: 1 for a correctly rounded op, 2 for a division (`div.full.f32`), a square root, a
reciprocal or a library function of 2 ulp.
"""

from __future__ import annotations

from collections.abc import Callable
from math import log2, prod, sqrt
from typing import Any

import torch

from adjudge.oracle.mode import Op
from adjudge.oracle.noise import Noise
from adjudge.oracle.regimes import FP32, Regime, roundoff

#: Nothing is computed: values are moved, chosen or compared.
EXACT = frozenset(
    """
    abs neg relu relu6 hardtanh clamp clamp_min clamp_max threshold where maximum minimum fmax fmin
    max min amax amin aminmax argmax argmin sort argsort topk kthvalue median nanmedian mode
    cummax cummin _cummax_helper _cummin_helper eq ne lt le gt ge isnan isinf isfinite isposinf
    isneginf signbit sign sgn round floor ceil trunc frac logical_and logical_or logical_not
    logical_xor bitwise_and bitwise_or bitwise_not bitwise_xor all any equal nonzero
    copy clone _to_copy lift_fresh lift detach alias view _unsafe_view reshape expand permute
    transpose t squeeze unsqueeze select slice split unsafe_split split_with_sizes unsafe_chunk
    chunk unbind cat stack hstack vstack as_strided diagonal diag diag_embed tril triu flip roll
    repeat repeat_interleave index gather index_select take take_along_dim embedding masked_fill
    masked_select masked_scatter scatter select_scatter slice_scatter index_copy index_fill
    fill fill_ zero zero_ zeros_like ones_like full_like empty_like new_empty new_zeros new_ones
    new_full new_empty_strided empty_strided rand_like randn_like constant_pad_nd pad
    reflection_pad1d reflection_pad2d reflection_pad3d replication_pad1d replication_pad2d
    replication_pad3d max_pool2d_with_indices max_pool3d_with_indices max_pool1d
    adaptive_max_pool2d adaptive_max_pool3d max_unpool2d max_unpool3d pixel_shuffle
    pixel_unshuffle channel_shuffle native_channel_shuffle im2col unfold upsample_nearest1d
    upsample_nearest2d upsample_nearest3d _upsample_nearest_exact1d _upsample_nearest_exact2d
    _upsample_nearest_exact3d searchsorted bucketize one_hot unique_consecutive _unique2 unique_dim
    item _local_scalar_dense is_same_size resize real imag view_as_real view_as_complex conj
    _conj resolve_conj resolve_neg complex polar _reshape_alias bernoulli native_dropout
    movedim narrow nan_to_num heaviside isin count_nonzero triu_indices tril_indices
    _assert_async _nested_tensor_from_mask glu_none set swap_dims unfold_copy
    """.split()
)

#: name → coefficient of u · |y|.
ELEMENTWISE: dict[str, float] = {
    "add": 1, "sub": 1, "rsub": 1, "mul": 1, "square": 1, "lerp": 3, "addcmul": 2, "addcdiv": 3,
    "div": 2, "divide": 2, "true_divide": 2, "reciprocal": 2, "sqrt": 2, "rsqrt": 2,
    "exp2": 2, "log": 2, "log2": 2, "log10": 2, "sin": 2, "cos": 2, "tan": 4, "sinc": 4,
    "asin": 4, "acos": 4, "atan": 4, "atan2": 4, "sinh": 4, "cosh": 4, "asinh": 4, "acosh": 4,
    "atanh": 4, "erf": 2, "erfinv": 6, "erfc": 4, "lgamma": 8, "digamma": 8, "hypot": 2,
    "fmod": 2, "floor_divide": 0, "_quantise": 1, "masked_scale": 1, "i0": 8, "copysign": 0,
    "deg2rad": 1, "rad2deg": 1, "ldexp": 0, "bernoulli_scale": 1,
}  # fmt: skip

#: Linear in the first argument: the scale of the error is the same op on absolute values.
SUMS = frozenset(
    """
    sum mean nansum nanmean avg_pool1d avg_pool2d avg_pool3d adaptive_avg_pool1d
    _adaptive_avg_pool2d _adaptive_avg_pool3d adaptive_avg_pool2d adaptive_avg_pool3d
    upsample_linear1d upsample_bilinear2d upsample_trilinear3d upsample_bicubic2d
    _upsample_bilinear2d_aa nll_loss_forward nll_loss2d_forward trace col2im grid_sampler_2d
    grid_sampler_3d segment_reduce _embedding_bag _embedding_bag_forward_only
    """.split()
)
#: name → positions of the two factors.
PRODUCTS: dict[str, tuple[int, int]] = {
    "mm": (0, 1), "bmm": (0, 1), "mv": (0, 1), "dot": (0, 1), "vdot": (0, 1), "addmm": (1, 2),
    "baddbmm": (1, 2), "addbmm": (1, 2), "addmv": (1, 2), "addr": (1, 2), "ger": (0, 1),
    "convolution": (0, 1), "_convolution": (0, 1), "convolution_overrideable": (0, 1),
    "linear": (0, 1), "_int_mm": (0, 1), "_trilinear": (0, 1),
}  # fmt: skip
ADDING = frozenset({"scatter_add", "index_add", "index_put", "_index_put_impl", "scatter_reduce"})

Scale = tuple[str, tuple[int, ...], torch.Tensor]


class Rules:
    """Executes one op and adds its error; one instance a run.

    Args:
        regime: what is rounded to what.
        base: the reference's own dtype; its roundoff bounds the store from below.
        noise: this run's errors.
        scales: sums of absolute values by the number of the op, shared between the runs of one
            reference. To first order they do not depend on the errors.
        worst: n in place of √n.
        amplify: multiplies every error; for finding values that hang on a comparison.
    """

    def __init__(
        self,
        regime: Regime,
        noise: Noise,
        scales: dict[tuple[int, str], Scale],
        *,
        worst: bool = False,
        amplify: float = 1.0,
        unknown: set[str] | None = None,
    ) -> None:
        self.regime = regime
        self.noise = noise
        self.scales = scales
        self.worst = worst
        self.amplify = amplify
        self.unknown = unknown if unknown is not None else set()
        self.number = 0
        self.contributions = 0

    def __call__(self, func: Any, op: Op, args: Any, kwargs: Any, kind: torch.dtype) -> Any:
        self.number += 1
        name = op.name
        if name in EXACT:
            return self._exact(func, op, args, kwargs)
        special = SPECIAL.get(name)
        if special is not None:
            return special(self, func, op, args, kwargs, kind)
        if name in ELEMENTWISE:
            return self._elementwise(func, op, args, kwargs, kind)
        if name in PRODUCTS:
            return self._product(func, op, args, kwargs, kind)
        if name in SUMS:
            return self._sum(func, op, args, kwargs, kind)
        result = func(*args, **kwargs)
        if getattr(func, "is_view", False) or not _floats(result):
            return result
        self.unknown.add(name)
        for y in _floats(result):
            self.store(y, 4.0, kind)
        return result

    def law(self, n: float) -> float:
        """How errors of n roundings add up."""
        n = max(1.0, n)
        return n if self.worst else sqrt(n)

    def u_store(self, kind: torch.dtype) -> float:
        own = roundoff(kind)
        return own if kind is torch.float64 else max(own, self.regime.store)

    def u_sum(self, kind: torch.dtype) -> float:
        return roundoff(kind) if kind is torch.float64 else self.regime.accumulate

    def store(self, y: torch.Tensor, c: float, kind: torch.dtype) -> None:
        """y rounded when it is stored: c · u · |y|."""
        if c and y.numel():
            self.contributions += 1
            if y.is_complex():
                self.noise.additive(y, _finite(y.abs()), c * self.u_store(kind) * self.amplify)
            else:
                self.noise.relative(y, c * self.u_store(kind) * self.amplify)

    def add(self, y: torch.Tensor, scale: torch.Tensor, u: float) -> None:
        if y.numel():
            self.contributions += 1
            self.noise.additive(y, _finite(scale), u * self.amplify)

    def scale(self, tag: str, shape: Any, compute: Callable[[], torch.Tensor]) -> torch.Tensor:
        """`compute()`, or what it gave in an earlier run at this op."""
        key = (self.number, tag)
        found = self.scales.get(key)
        if found is not None and found[1] == tuple(shape):
            return found[2]
        value = _finite(compute())
        if value.numel() <= 1 << 22:
            self.scales[key] = (tag, tuple(shape), value)
        return value

    def _exact(self, func: Any, op: Op, args: Any, kwargs: Any) -> Any:
        if op.name in ("topk", "sort", "kthvalue", "median") and self.amplify > 1.0:
            return _untied(self, func, args, kwargs)
        return func(*args, **kwargs)

    def _elementwise(
        self, func: Any, op: Op, args: Any, kwargs: Any, kind: torch.dtype
    ) -> Any:
        result = func(*args, **kwargs)
        c = float(ELEMENTWISE[op.name])
        for y in _floats(result):
            scalar = next((a for a in args[1:] if type(a) is float), None)
            if scalar is not None and op.name in ("add", "sub", "rsub") and scalar:
                self.add(y, torch.tensor(abs(scalar), dtype=torch.float64), self.u_sum(kind))
            elif scalar is not None:
                c += 1.0
            self.store(y, c, kind)
        return result

    def _product(self, func: Any, op: Op, args: Any, kwargs: Any, kind: torch.dtype) -> Any:
        i, j = PRODUCTS[op.name]
        a, b = args[i], args[j]
        terms = _terms(op.name, a, b, args)
        plain = _without_addend(func, op, args, kwargs, i, j)
        before = args[0].abs() if i == 1 else None
        result = func(*args, **kwargs)
        y = result
        shape = tuple(y.shape)
        size = self.scale("abs", shape, lambda: plain(a.abs(), b.abs()))
        self.add(y, size, self.u_sum(kind) * self.law(terms))
        operand = 0.0 if kind is torch.float64 else self.regime.operand
        if operand > roundoff(kind):
            if self.worst:
                self.add(y, size, 2.0 * operand)
            else:
                square = self.scale("square", shape, lambda: plain(a * a, b * b).clamp_min(0).sqrt())
                self.add(y, square, 2.0 * operand)
        if before is not None:
            self.add(y, before, self.u_sum(kind))
        self.store(y, 1.0, kind)
        return result

    def _sum(self, func: Any, op: Op, args: Any, kwargs: Any, kind: torch.dtype) -> Any:
        x = args[0]
        result = func(*args, **kwargs)
        floats = _floats(result)
        if not floats:
            return result
        y = floats[0]
        terms = max(2.0, x.numel() / max(1, y.numel()))

        def absolute() -> torch.Tensor:
            other = func(x.abs(), *args[1:], **kwargs)
            return _floats(other)[0].abs()

        if "out" not in kwargs and x.is_floating_point():
            size = self.scale("abs", y.shape, absolute)
            self.add(y, size, self.u_sum(kind) * self.law(terms))
        self.store(y, 1.0, kind)
        return result


def _floats(result: Any) -> list[torch.Tensor]:
    items = result if isinstance(result, (tuple, list)) else (result,)
    return [
        t for t in items if isinstance(t, torch.Tensor) and (t.is_floating_point() or t.is_complex())
    ]


def _finite(scale: torch.Tensor) -> torch.Tensor:
    return torch.nan_to_num(scale, nan=0.0, posinf=0.0, neginf=0.0)


def _terms(name: str, a: torch.Tensor, b: torch.Tensor, args: Any) -> float:
    """Length of the sums in a product."""
    if "convolution" in name:
        transposed, groups = args[6], args[8]
        if transposed:
            return float(prod(b.shape[2:]) * b.shape[0] / max(1, groups))
        return float(prod(b.shape[1:]))
    if name == "_trilinear":
        return float(a.shape[-1] * b.shape[-1])
    if name in ("addr", "ger"):
        return 1.0
    if name == "addbmm":
        return float(a.shape[-1] * a.shape[0])
    return float(a.shape[-1]) if a.ndim else 1.0


def _without_addend(
    func: Any, op: Op, args: Any, kwargs: Any, i: int, j: int
) -> Callable[[torch.Tensor, torch.Tensor], torch.Tensor]:
    """The bare product of two factors in place of the op's own."""
    if op.name in ("addmm", "baddbmm", "addbmm", "addmv", "addr"):
        alpha = abs(float(kwargs.get("alpha", 1)))
        bare = {
            "addmm": torch.mm,
            "baddbmm": torch.bmm,
            "addbmm": lambda p, q: torch.bmm(p, q).sum(0),
            "addmv": torch.mv,
            "addr": torch.outer,
        }[op.name]
        return lambda p, q: bare(p, q) * alpha  # type: ignore[operator]

    def call(p: torch.Tensor, q: torch.Tensor) -> torch.Tensor:
        other = list(args)
        other[i], other[j] = p, q
        if "convolution" in op.name:
            other[2] = None
        if op.name == "_trilinear":
            other[2] = args[2].abs()
        return func(*other)  # type: ignore[no-any-return]

    return call


def _untied(rules: Rules, func: Any, args: Any, kwargs: Any) -> Any:
    """Breaks ties at random: no order of equal values is promised. Values are taken unchanged."""
    x = args[0]
    if not x.is_floating_point() or not x.numel():
        return func(*args, **kwargs)
    spread = x.detach().clone()
    # Far above float64's own spacing, far below any rounding error of float32.
    rules.noise.additive(spread, _finite(spread.abs()) + 1e-300, 1e-13)
    result = func(spread, *args[1:], **kwargs)
    return result


def _power(rules: Rules, func: Any, op: Op, args: Any, kwargs: Any, kind: torch.dtype) -> Any:
    """Small integer powers by multiplication; others as 2^(p · log2 x), whose exponent is rounded."""
    base, exponent = args[0], args[1]
    before = base.clone() if op.in_place else base
    result = func(*args, **kwargs)
    number = isinstance(exponent, (int, float))
    if number and abs(exponent) <= 8 and float(exponent * 2).is_integer():
        rules.store(result, max(1.0, abs(float(exponent))), kind)
        return result
    power = torch.as_tensor(exponent, dtype=torch.float64)
    size = torch.as_tensor(before, dtype=torch.float64).abs().log().mul(power).abs()
    rules.add(result, result.abs() * _finite(size), rules.u_store(kind))
    rules.store(result, 4.0, kind)
    return result


def _exp(rules: Rules, func: Any, op: Op, args: Any, kwargs: Any, kind: torch.dtype) -> Any:
    """exp x is computed as exp2(x · log2 e): the rounding of the exponent is relative to x."""
    x = args[0]
    given = x if op.in_place else x.double().clone()
    if not x.is_floating_point():
        return func(*args, **kwargs)
    rules.store(given, 1.0, _at_least_single(kind))
    result = func(given, *args[1:], **kwargs)
    rules.store(result, 2.0, kind)
    return result


def _at_least_single(kind: torch.dtype) -> torch.dtype:
    return kind if kind is torch.float64 else torch.float32


def _expm1(rules: Rules, func: Any, op: Op, args: Any, kwargs: Any, kind: torch.dtype) -> Any:
    """exp x - 1, the textbook formula: the error is relative to exp x, not to the difference."""
    result = func(*args, **kwargs)
    rules.add(result, result + 1.0, 3.0 * rules.u_sum(kind))
    rules.store(result, 2.0, kind)
    return result


def _log1p(rules: Rules, func: Any, op: Op, args: Any, kwargs: Any, kind: torch.dtype) -> Any:
    """log(1 + x), the textbook formula: rounding 1 + x moves the result by u."""
    result = func(*args, **kwargs)
    rules.add(result, torch.ones((), dtype=torch.float64), rules.u_sum(kind))
    rules.store(result, 2.0, kind)
    return result


def _scan(rules: Rules, func: Any, op: Op, args: Any, kwargs: Any, kind: torch.dtype) -> Any:
    x, dim = args[0], args[1]
    size = None
    if x.is_floating_point() and x.ndim:
        size = rules.scale("abs", x.shape, lambda: _scan_scale(rules, x, dim))
    result = func(*args, **kwargs)
    if size is not None:
        rules.add(result, size, rules.u_sum(kind))
    for y in _floats(result):
        rules.store(y, 1.0, kind)
    return result


def _steps(rules: Rules, x: torch.Tensor, dim: int) -> torch.Tensor:
    """The law of the number of terms before each place along `dim`."""
    steps = torch.arange(1, x.shape[dim] + 1, dtype=torch.float64)
    shape = [1] * x.ndim
    shape[dim] = -1
    return (steps if rules.worst else steps.sqrt()).view(shape)


def _scan_scale(rules: Rules, x: torch.Tensor, dim: int) -> torch.Tensor:
    return torch.cumsum(x.abs(), dim) * _steps(rules, x, dim)


def _scanned_product(
    rules: Rules, func: Any, op: Op, args: Any, kwargs: Any, kind: torch.dtype
) -> Any:
    result = func(*args, **kwargs)
    if not _floats(result):
        return result
    if op.name == "cumprod" and result.ndim:
        rules.add(result, result.abs() * _steps(rules, result, args[1]), rules.u_sum(kind))
    else:
        terms = args[0].numel() / max(1, result.numel())
        rules.add(result, result.abs(), rules.u_sum(kind) * rules.law(terms))
    rules.store(result, 1.0, kind)
    return result


def _log_scan(rules: Rules, func: Any, op: Op, args: Any, kwargs: Any, kind: torch.dtype) -> Any:
    result = func(*args, **kwargs)
    if result.ndim:
        rules.add(result, _steps(rules, result, args[1]).expand_as(result), rules.u_sum(kind))
    rules.store(result, 3.0, kind)
    return result


def _adding(rules: Rules, func: Any, op: Op, args: Any, kwargs: Any, kind: torch.dtype) -> Any:
    """Several values may be added into one place; how many follows from adding ones."""
    if not args[0].is_floating_point() or not _adds(op.name, args, kwargs):
        return func(*args, **kwargs)
    at = 2 if op.name.startswith(("index_put", "_index_put")) else 3

    def on(target: torch.Tensor, source: torch.Tensor) -> torch.Tensor:
        other = list(args)
        other[0], other[at] = target.clone(), source
        return func(*other, **kwargs)  # type: ignore[no-any-return]

    target, source = args[0], args[at]
    name = f"abs {op.name}"
    size = rules.scale(name, target.shape, lambda: on(target.abs(), source.abs()))
    zero = torch.zeros_like(target)
    count = rules.scale("count", target.shape, lambda: on(zero, torch.ones_like(source)))
    result = func(*args, **kwargs)
    steps = count.clamp_min(1.0) if rules.worst else count.clamp_min(1.0).sqrt()
    touched = (count > 0).to(torch.float64)
    rules.add(result, size * steps * touched, 2.0 * rules.u_sum(kind))
    return result


def _adds(name: str, args: Any, kwargs: Any) -> bool:
    if name in ("index_put", "_index_put_impl"):
        return bool(args[3] if len(args) > 3 else kwargs.get("accumulate", False))
    if name == "scatter_reduce":
        return (args[4] if len(args) > 4 else kwargs.get("reduce")) in ("sum", "mean")
    return True


def _fourier(rules: Rules, func: Any, op: Op, args: Any, kwargs: Any, kind: torch.dtype) -> Any:
    """An FFT of length n errs by about log2(n) roundings of the root of the sum of squares, the
    same at every frequency (Higham, Accuracy and Stability, section 24.1)."""
    x, dims = args[0], args[1]
    result = func(*args, **kwargs)
    length = prod(x.shape[d] for d in dims)
    gain = result.abs().square().mean(dim=tuple(dims), keepdim=True).sqrt()
    rules.add(result, gain.expand(result.shape), FP32 * 2.0 * max(1.0, log2(max(2, length))))
    return result


def _remainder(rules: Rules, func: Any, op: Op, args: Any, kwargs: Any, kind: torch.dtype) -> Any:
    size = torch.as_tensor(args[0], dtype=torch.float64).abs().clone()
    result = func(*args, **kwargs)
    for y in _floats(result):
        rules.add(y, size, rules.u_sum(kind))
    return result


Rule = Callable[[Rules, Any, Op, Any, Any, torch.dtype], Any]

SPECIAL: dict[str, Rule] = {
    "pow": _power,
    "exp": _exp,
    "expm1": _expm1,
    "log1p": _log1p,
    "cumsum": _scan,
    "cumprod": _scanned_product,
    "prod": _scanned_product,
    "logcumsumexp": _log_scan,
    "_logcumsumexp": _log_scan,
    "remainder": _remainder,
    "_fft_r2c": _fourier,
    "_fft_c2c": _fourier,
    "_fft_c2r": _fourier,
    **dict.fromkeys(ADDING, _adding),
}
