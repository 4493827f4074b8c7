"""Composite ops as the arithmetic that honest kernels do.

A composite op left whole would be given one rounding of its result, where a kernel rounds every
intermediate value. Each function here is the textbook formula through exponentials and logarithms,
written for accuracy of the whole (no approximation is honest, only rounding), and takes the
arguments of the ATen op of its name. All agree with ATen in float64 up to float64's own rounding.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from math import pi, sqrt
from typing import Any

import torch

from adjudge.oracle.mode import Op
from adjudge.oracle.rules import ELEMENTWISE, EXACT, PRODUCTS, SPECIAL, SUMS

Tensor = torch.Tensor


def sigmoid(x: Tensor) -> Tensor:
    return 1.0 / (1.0 + torch.exp(-x))


def tanh(x: Tensor) -> Tensor:
    e = torch.exp(-2.0 * x.abs())
    return torch.sign(x) * ((1.0 - e) / (1.0 + e))


def silu(x: Tensor) -> Tensor:
    # At -Inf every formula gives NaN but ATen's own division gives it as well: -Inf / Inf.
    return x / (1.0 + torch.exp(-x))


def softplus(x: Tensor, beta: float = 1.0, threshold: float = 20.0) -> Tensor:
    z = x * beta
    capped = torch.clamp_max(z, threshold)
    return torch.where(z > threshold, x, torch.log(1.0 + torch.exp(capped)) / beta)


def log_sigmoid_forward(x: Tensor) -> tuple[Tensor, Tensor]:
    e = torch.exp(-x.abs())
    return torch.clamp_max(x, 0.0) - torch.log(1.0 + e), e


def mish(x: Tensor) -> Tensor:
    return x * tanh(softplus(x))


def gelu(x: Tensor, *, approximate: str = "none") -> Tensor:
    if approximate == "tanh":
        return 0.5 * x * (1.0 + tanh(sqrt(2.0 / pi) * (x + 0.044715 * x * x * x)))
    return 0.5 * x * (1.0 + torch.erf(x * sqrt(0.5)))


def elu(x: Tensor, alpha: float = 1.0, scale: float = 1.0, input_scale: float = 1.0) -> Tensor:
    negative = (torch.exp(torch.clamp_max(x * input_scale, 0.0)) - 1.0) * (alpha * scale)
    return torch.where(x > 0, x * scale if scale != 1.0 else x, negative)


def leaky_relu(x: Tensor, negative_slope: float = 0.01) -> Tensor:
    return torch.where(x > 0, x, x * negative_slope)


def prelu(x: Tensor, weight: Tensor) -> Tensor:
    return torch.where(x > 0, x, x * weight)


def rrelu(x: Tensor, lower: float, upper: float, training: bool = False, *_: Any) -> Any:
    return NotImplemented if training else leaky_relu(x, (lower + upper) / 2)


def hardsigmoid(x: Tensor) -> Tensor:
    return torch.clamp((x + 3.0) / 6.0, 0.0, 1.0)


def hardswish(x: Tensor) -> Tensor:
    return x * (torch.clamp(x + 3.0, 0.0, 6.0) / 6.0)


def glu(x: Tensor, dim: int = -1) -> Tensor:
    a, b = x.chunk(2, dim)
    return a * sigmoid(b)


def softshrink(x: Tensor, lambd: float = 0.5) -> Tensor:
    zero = torch.zeros_like(x)
    kept = torch.where(x > lambd, x - lambd, torch.where(x < -lambd, x + lambd, zero))
    return torch.where(torch.isnan(x), x, kept)


def hardshrink(x: Tensor, lambd: float = 0.5) -> Tensor:
    return torch.where((x >= -lambd) & (x <= lambd), torch.zeros_like(x), x)


def logit(x: Tensor, eps: float | None = None) -> Tensor:
    x = x if eps is None else torch.clamp(x, eps, 1.0 - eps)
    return torch.log(x / (1.0 - x))


def xlogy(x: Any, y: Any) -> Any:
    if not (isinstance(x, Tensor) and isinstance(y, Tensor)):
        return NotImplemented
    product = torch.where(x == 0, torch.zeros_like(x), x * torch.log(y))
    return torch.where(torch.isnan(y), y.expand_as(product), product)


def logaddexp(a: Tensor, b: Tensor) -> Tensor:
    top = torch.maximum(a, b)
    finite = torch.where(torch.isinf(top), torch.zeros_like(top), top)
    return finite + torch.log(torch.exp(a - finite) + torch.exp(b - finite))


def _scaled(x: Tensor) -> Tensor:
    """exp(x - m) is computed as exp2(x · log2 e - m · log2 e): the product is rounded."""
    return x * torch.ones((), dtype=x.dtype)


def softmax(x: Tensor, dim: int, half_to_float: bool = False) -> Tensor:
    if x.ndim == 0:
        return NotImplemented
    e = torch.exp(_scaled(x) - x.amax(dim, keepdim=True)) if x.numel() else x
    return e / e.sum(dim, keepdim=True)


def safe_softmax(x: Tensor, dim: int, dtype: Any = None) -> Tensor:
    masked = torch.isneginf(x).all(dim=dim, keepdim=True)
    return torch.where(masked, torch.zeros_like(x), softmax(x, dim))


def log_softmax(x: Tensor, dim: int, half_to_float: bool = False) -> Tensor:
    if x.ndim == 0 or not x.numel():
        return NotImplemented
    z = x - x.amax(dim, keepdim=True)
    return z - torch.log(torch.exp(z).sum(dim, keepdim=True))


def logsumexp(x: Tensor, dim: Any, keepdim: bool = False) -> Tensor:
    if not x.numel() or not x.ndim:
        return NotImplemented
    top = x.amax(dim, keepdim=True)
    top = torch.where(torch.isinf(top), torch.zeros_like(top), top)
    total = torch.log(torch.exp(x - top).sum(dim, keepdim=True)) + top
    if keepdim:
        return total
    dims = [dim] if isinstance(dim, int) else list(dim)
    return total.squeeze(dims)


def _all_dims(x: Tensor, dim: Any) -> list[int]:
    if dim is None or (isinstance(dim, Sequence) and not dim):
        return list(range(x.ndim))
    return [dim] if isinstance(dim, int) else list(dim)


def _dropped(y: Tensor, dims: list[int], keepdim: bool) -> Tensor:
    return y if keepdim or not dims else y.squeeze(dims)


def vector_norm(
    x: Tensor, ord: float = 2, dim: Any = None, keepdim: bool = False, *, dtype: Any = None
) -> Tensor:
    if not x.numel() or not x.ndim:
        return NotImplemented
    dims = _all_dims(x, dim)
    order = float(ord)
    if order == 2.0:
        y = torch.sqrt((x * x).sum(dims, keepdim=True))
    elif order == 1.0:
        y = x.abs().sum(dims, keepdim=True)
    elif order == float("inf"):
        y = x.abs().amax(dims, keepdim=True)
    elif order == float("-inf"):
        y = x.abs().amin(dims, keepdim=True)
    elif order == 0.0:
        return NotImplemented
    else:
        y = x.abs().pow(order).sum(dims, keepdim=True).pow(1.0 / order)
    return _dropped(y, dims, keepdim)


def norm(
    x: Tensor, p: Any = 2, dim: Any = None, keepdim: bool = False, *, dtype: Any = None
) -> Tensor:
    return vector_norm(x, 2 if p is None else p, dim, keepdim)


def _moments(x: Tensor, dim: Any, correction: float) -> tuple[Tensor, Tensor, list[int]]:
    dims = _all_dims(x, dim)
    mean = x.mean(dims, keepdim=True)
    centred = x - mean
    n = x.numel() // max(1, mean.numel())
    total = (centred * centred).sum(dims, keepdim=True)
    return total / max(0.0, n - correction), mean, dims


def var(x: Tensor, *args: Any, correction: Any = 1, keepdim: bool = False, **kwargs: Any) -> Any:
    return _variance(x, args, correction, keepdim, kwargs, root=False, with_mean=False)


def std(x: Tensor, *args: Any, correction: Any = 1, keepdim: bool = False, **kwargs: Any) -> Any:
    return _variance(x, args, correction, keepdim, kwargs, root=True, with_mean=False)


def var_mean(
    x: Tensor, *args: Any, correction: Any = 1, keepdim: bool = False, **kwargs: Any
) -> Any:
    return _variance(x, args, correction, keepdim, kwargs, root=False, with_mean=True)


def std_mean(
    x: Tensor, *args: Any, correction: Any = 1, keepdim: bool = False, **kwargs: Any
) -> Any:
    return _variance(x, args, correction, keepdim, kwargs, root=True, with_mean=True)


def _variance(
    x: Tensor, args: Any, correction: Any, keepdim: bool, kwargs: Any, *, root: bool, with_mean: bool
) -> Any:
    """The overloads: (x, unbiased), (x, dim, unbiased, keepdim) and (x, dim, *, correction)."""
    if x.is_complex() or not x.numel() or "out" in kwargs:
        return NotImplemented
    dim = kwargs.get("dim")
    rest = list(args)
    if rest and not isinstance(rest[0], bool):
        dim = rest.pop(0)
    if rest:
        correction = int(rest.pop(0))
    if "unbiased" in kwargs:
        correction = int(kwargs["unbiased"])
    if rest:
        keepdim = rest.pop(0)
    found, mean, dims = _moments(x, dim, 1 if correction is None else float(correction))
    found = torch.sqrt(found) if root else found
    found = _dropped(found, dims, keepdim)
    return (found, _dropped(mean, dims, keepdim)) if with_mean else found


def layer_norm(
    x: Tensor, shape: Sequence[int], weight: Tensor | None, bias: Tensor | None, eps: float
) -> Any:
    if not x.numel():
        return NotImplemented
    dims = list(range(x.ndim - len(shape), x.ndim))
    variance, mean, _ = _moments(x, dims, 0)
    rstd = torch.rsqrt(variance + eps)
    y = (x - mean) * rstd
    y = y if weight is None else y * weight
    return (y if bias is None else y + bias), mean, rstd


def group_norm(
    x: Tensor, weight: Tensor | None, bias: Tensor | None, n: int, c: int, hw: int, groups: int,
    eps: float,
) -> Any:  # fmt: skip
    if not x.numel():
        return NotImplemented
    grouped = x.reshape(n, groups, -1)
    variance, mean, _ = _moments(grouped, [2], 0)
    rstd = torch.rsqrt(variance + eps)
    per_channel = (n, groups, c // groups, 1)
    scale = rstd.unsqueeze(2).expand(per_channel).reshape(n, c, 1)
    centre = mean.unsqueeze(2).expand(per_channel).reshape(n, c, 1)
    y = _affine(x.reshape(n, c, hw), centre, scale, weight, bias, (1, c, 1))
    return y.reshape(x.shape), mean.reshape(n, groups), rstd.reshape(n, groups)


def _affine(
    x: Tensor, mean: Tensor, scale: Tensor, weight: Tensor | None, bias: Tensor | None, shape: Any
) -> Tensor:
    """x · s + (b - mean · s), folded as ATen and deployed kernels fold it."""
    if weight is not None:
        scale = scale * weight.view(shape)
    offset = -mean * scale
    if bias is not None:
        offset = offset + bias.view(shape)
    return x * scale + offset


def batch_norm(
    x: Tensor, weight: Tensor | None, bias: Tensor | None, running_mean: Tensor | None,
    running_var: Tensor | None, training: bool, momentum: float, eps: float, *_: Any,
) -> Any:  # fmt: skip
    if not x.numel():
        return NotImplemented
    shape = [1, x.shape[1]] + [1] * (x.ndim - 2)
    dims = [0, *range(2, x.ndim)]
    if training:
        variance, mean, _dims = _moments(x, dims, 0)
        if running_mean is not None and running_var is not None:
            n = x.numel() / x.shape[1]
            unbiased = variance * (n / max(1.0, n - 1))
            running_mean.mul_(1 - momentum).add_(mean.flatten() * momentum)
            running_var.mul_(1 - momentum).add_(unbiased.flatten() * momentum)
    else:
        assert running_mean is not None
        assert running_var is not None
        mean, variance = running_mean.view(shape), running_var.view(shape)
    rstd = torch.rsqrt(variance + eps)
    y = _affine(x, mean, rstd, weight, bias, shape)
    return y, mean.flatten(), rstd.flatten()


def _batch_norm_legit(
    x: Tensor, weight: Any, bias: Any, mean: Tensor, variance: Tensor, training: bool,
    momentum: float, eps: float,
) -> Any:  # fmt: skip
    return batch_norm(x, weight, bias, mean, variance, training, momentum, eps)


def _reduced(loss: Tensor, reduction: int) -> Tensor:
    return loss if reduction == 0 else loss.mean() if reduction == 1 else loss.sum()


def mse_loss(x: Tensor, y: Tensor, reduction: int = 1) -> Tensor:
    d = x - y
    return _reduced(d * d, reduction)


def smooth_l1_loss(x: Tensor, y: Tensor, reduction: int = 1, beta: float = 1.0) -> Tensor:
    d = (x - y).abs()
    return _reduced(d if beta == 0 else torch.where(d < beta, 0.5 * d * d / beta, d - 0.5 * beta),
                    reduction)  # fmt: skip


def huber_loss(x: Tensor, y: Tensor, reduction: int = 1, delta: float = 1.0) -> Tensor:
    d = (x - y).abs()
    return _reduced(torch.where(d <= delta, 0.5 * d * d, delta * (d - 0.5 * delta)), reduction)


def bce_loss(x: Tensor, y: Tensor, weight: Tensor | None = None, reduction: int = 1) -> Tensor:
    loss = -(y * torch.clamp_min(torch.log(x), -100.0)
             + (1.0 - y) * torch.clamp_min(torch.log(1.0 - x), -100.0))  # fmt: skip
    return _reduced(loss if weight is None else loss * weight, reduction)


def bce_logits_loss(
    x: Tensor, y: Tensor, weight: Any = None, pos_weight: Any = None, reduction: int = 1
) -> Tensor:
    soft = torch.log(1.0 + torch.exp(-x.abs())) + torch.clamp_min(-x, 0.0)
    if pos_weight is not None:
        loss = (1.0 - y) * x + (1.0 + (pos_weight - 1.0) * y) * soft
    else:
        loss = (1.0 - y) * x + soft
    return _reduced(loss if weight is None else loss * weight, reduction)


def cdist(a: Tensor, b: Tensor, p: float, mode: Any = None) -> Tensor:
    return vector_norm(a.unsqueeze(-2) - b.unsqueeze(-3), p, -1)


TABLE: dict[str, Callable[..., Any]] = {
    "sigmoid": sigmoid, "tanh": tanh, "silu": silu, "softplus": softplus, "mish": mish,
    "log_sigmoid_forward": log_sigmoid_forward, "gelu": gelu, "elu": elu,
    "leaky_relu": leaky_relu, "prelu": prelu, "_prelu_kernel": prelu, "hardsigmoid": hardsigmoid,
    "hardswish": hardswish, "glu": glu, "softshrink": softshrink, "hardshrink": hardshrink,
    "logit": logit, "xlogy": xlogy, "logaddexp": logaddexp, "rrelu": rrelu,
    "_softmax": softmax, "_safe_softmax": safe_softmax, "_log_softmax": log_softmax,
    "logsumexp": logsumexp, "linalg_vector_norm": vector_norm, "norm": norm,
    "var": var, "std": std, "var_mean": var_mean, "std_mean": std_mean,
    "native_layer_norm": layer_norm, "native_group_norm": group_norm,
    "native_batch_norm": batch_norm, "_native_batch_norm_legit": _batch_norm_legit,
    "cudnn_batch_norm": batch_norm, "mse_loss": mse_loss, "smooth_l1_loss": smooth_l1_loss,
    "huber_loss": huber_loss, "binary_cross_entropy": bce_loss,
    "binary_cross_entropy_with_logits": bce_logits_loss, "_cdist_forward": cdist,
}  # fmt: skip


@lru_cache(maxsize=1)
def _core() -> dict[str, Callable[..., Any]]:
    """PyTorch's own decompositions, by the name of the op and its overload."""
    from torch._decomp import core_aten_decompositions

    return {str(op): function for op, function in core_aten_decompositions().items()}


def decomposition(op: Op, overload: str = "") -> Callable[..., Any] | None:
    """How to split `op`, or None where it is primitive or nothing is known about it."""
    own = TABLE.get(op.name)
    if own is not None:
        return own
    known = op.name in EXACT or op.name in ELEMENTWISE or op.name in PRODUCTS
    if known or op.name in SUMS or op.name in SPECIAL or op.in_place:
        return None
    return _core().get(overload)
