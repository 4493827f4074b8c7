"""Composite operations down to the arithmetic that is really done.

Left whole, a composite underestimates the error of an honest kernel: layer norm on data with a mean
by a thousand times. Transcendental activations are written as the textbook forms through the
exponential that kernels use, so that their absolute error near zero is allowed.
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod, sqrt
from typing import Any

import torch

aten = torch.ops.aten
Tensor = torch.Tensor
Decomposition = Callable[..., Any]


def _sigmoid(x: Tensor) -> Tensor:
    small = torch.exp(-torch.abs(x))
    return torch.where(x >= 0, 1 / (1 + small), small / (1 + small))


def _tanh(x: Tensor) -> Tensor:
    small = torch.exp(-2 * torch.abs(x))
    return torch.where(x >= 0, (1 - small) / (1 + small), -((1 - small) / (1 + small)))


def _softplus(x: Tensor, beta: float = 1, threshold: float = 20) -> Tensor:
    scaled = x * beta
    # log(1 + e) rounds 1 + e, so that an absolute error of one unit is honest.
    soft = (torch.clamp(scaled, min=0) + torch.log(1 + torch.exp(-torch.abs(scaled)))) / beta
    return torch.where(scaled > threshold, x, soft)


def _gelu(x: Tensor, approximate: str = "none") -> Tensor:
    if approximate == "tanh":
        return 0.5 * x * (1 + _tanh(sqrt(2 / torch.pi) * (x + 0.044715 * x * x * x)))
    return x * 0.5 * (1 + torch.erf(x * sqrt(0.5)))


def _elu(x: Tensor, alpha: float = 1, scale: float = 1, input_scale: float = 1) -> Tensor:
    negative = alpha * (torch.exp(torch.clamp(x * input_scale, max=0)) - 1)
    return torch.where(x > 0, x, negative) * scale


def _softmax(x: Tensor, dim: int, half_to_float: bool = False) -> Tensor:
    if not x.numel():
        return torch.empty_like(x)
    shifted = torch.exp(x - torch.amax(x, dim, keepdim=True))
    return shifted / torch.sum(shifted, dim, keepdim=True)


def _safe_softmax(x: Tensor, dim: int, dtype: Any = None) -> Tensor:
    """Zero where every score is minus infinity. Without a comparison, which a NaN would mislead."""
    if not x.numel():
        return torch.empty_like(x)
    info = torch.finfo(x.dtype)
    shifted = torch.exp(x - torch.amax(x, dim, keepdim=True).clamp(min=info.min))
    # The largest weight is 1.
    return shifted / torch.sum(shifted, dim, keepdim=True).clamp(min=info.tiny)


def _log_softmax(x: Tensor, dim: int, half_to_float: bool = False) -> Tensor:
    if not x.numel():
        return torch.empty_like(x)
    # The textbook's x - logsumexp(x), which kernels that keep only the sum's logarithm compute; the
    # form with the maximum taken off first is tighter where the maximum is large.
    top = torch.amax(x, dim, keepdim=True)
    return x - (top + torch.log(torch.sum(torch.exp(x - top), dim, keepdim=True)))


def _logsumexp(x: Tensor, dim: Any, keepdim: bool = False) -> Tensor:
    top = torch.amax(x, dim, keepdim=True)
    top = torch.where(torch.isinf(top), torch.zeros_like(top), top)
    total = torch.log(torch.sum(torch.exp(x - top), dim, keepdim=True)) + top
    return total if keepdim else total.squeeze(dim)


def _squares(x: Tensor, dims: list[int]) -> tuple[Tensor, int]:
    """The sum of squared deviations from the mean, dims kept, and the number of terms.

    Formed as Welford's recurrence forms it (B. P. Welford, Technometrics 4, 1962): the k-th term is
    (x_k - m_k)^2 k / (k - 1), with the mean m_k of the first k. It equals the sum about the final mean,
    and errs more where the mean is large, as honest kernels of one pass do.
    """
    places = [d % x.dim() for d in dims]
    rest = [d for d in range(x.dim()) if d not in places]
    count = prod(x.shape[d] for d in places)
    flat = x.permute([*rest, *places]).reshape([*(x.shape[d] for d in rest), count])
    k = torch.arange(1, count + 1, dtype=x.dtype, device=x.device)
    centred = flat - torch.cumsum(flat, -1) / k
    weight = torch.where(k > 1, k / torch.clamp(k - 1, min=1), torch.zeros_like(k))
    total = torch.sum(centred * centred * weight, -1)
    return total.reshape([1 if d in places else x.shape[d] for d in range(x.dim())]), count


def _moments(x: Tensor, dims: list[int]) -> tuple[Tensor, Tensor]:
    total, count = _squares(x, dims)
    return torch.mean(x, dims, keepdim=True), total / count


def _layer_norm(
    x: Tensor, shape: list[int], weight: Tensor | None, bias: Tensor | None, eps: float
) -> tuple[Tensor, Tensor, Tensor]:
    dims = list(range(x.dim() - len(shape), x.dim()))
    mean, variance = _moments(x, dims)
    scale = 1 / torch.sqrt(variance + eps)
    out = (x - mean) * scale
    out = out if weight is None else out * weight
    return (out if bias is None else out + bias), mean, scale


def _group_norm(
    x: Tensor, weight: Tensor | None, bias: Tensor | None,
    n: int, c: int, hw: int, groups: int, eps: float,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    grouped = x.reshape(n, groups, -1)
    mean, variance = _moments(grouped, [2])
    scale = 1 / torch.sqrt(variance + eps)
    out = ((grouped - mean) * scale).reshape(x.shape)
    shape = [1, c] + [1] * (x.dim() - 2)
    out = out if weight is None else out * weight.reshape(shape)
    out = out if bias is None else out + bias.reshape(shape)
    return out, mean.reshape(n, groups), scale.reshape(n, groups)


def _batch_norm(
    x: Tensor, weight: Tensor | None, bias: Tensor | None,
    mean: Tensor | None, variance: Tensor | None, training: bool, momentum: float, eps: float,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    shape = [1, x.shape[1]] + [1] * (x.dim() - 2)
    if training or mean is None or variance is None:
        dims = [0, *range(2, x.dim())]
        batch_mean, batch_variance = _moments(x, dims)
        _update_running(x, mean, variance, batch_mean, batch_variance, momentum)
    else:
        batch_mean, batch_variance = mean.reshape(shape), variance.reshape(shape)
    scale = 1 / torch.sqrt(batch_variance + eps)
    out = (x - batch_mean) * scale
    out = out if weight is None else out * weight.reshape(shape)
    out = out if bias is None else out + bias.reshape(shape)
    return out, batch_mean.reshape(-1), scale.reshape(-1)


def _update_running(
    x: Tensor, mean: Tensor | None, variance: Tensor | None,
    batch_mean: Tensor, batch_variance: Tensor, momentum: float,
) -> None:  # fmt: skip
    if mean is None or variance is None:
        return
    count = x.numel() / x.shape[1]
    unbiased = batch_variance.reshape(-1) * (count / max(count - 1, 1))
    mean.copy_(mean * (1 - momentum) + batch_mean.reshape(-1) * momentum)
    variance.copy_(variance * (1 - momentum) + unbiased * momentum)


def _batch_norm_no_stats(
    x: Tensor, weight: Any, bias: Any, training: bool, momentum: float, eps: float
) -> Any:
    return _batch_norm(x, weight, bias, None, None, True, momentum, eps)


def _var(
    x: Tensor, dim: Any = None, *, correction: float | None = 1, keepdim: bool = False
) -> Tensor:
    dims = list(range(x.dim())) if not dim else list(dim)
    total, count = _squares(x, dims)
    total = total if keepdim else total.squeeze(dims)
    return total / max(count - (1 if correction is None else correction), 0)


def _vector_norm(
    x: Tensor, order: float = 2, dim: Any = None, keepdim: bool = False, *, dtype: Any = None
) -> Tensor:
    dims = list(range(x.dim())) if dim is None else list(dim)
    if order == 2:
        return torch.sqrt(torch.sum(x * x, dims, keepdim=keepdim))
    if order == 1:
        return torch.sum(torch.abs(x), dims, keepdim=keepdim)
    if order == float("inf"):
        return torch.amax(torch.abs(x), dims, keepdim=keepdim)
    return torch.pow(torch.sum(torch.pow(torch.abs(x), order), dims, keepdim=keepdim), 1 / order)


def _addmm(bias: Tensor, a: Tensor, b: Tensor, *, beta: Any = 1, alpha: Any = 1) -> Tensor:
    product = torch.mm(a, b)
    product = product if alpha == 1 else product * alpha
    return product if beta == 0 else product + (bias if beta == 1 else bias * beta)


def _baddbmm(bias: Tensor, a: Tensor, b: Tensor, *, beta: Any = 1, alpha: Any = 1) -> Tensor:
    product = torch.bmm(a, b)
    product = product if alpha == 1 else product * alpha
    return product if beta == 0 else product + (bias if beta == 1 else bias * beta)


def _addmv(bias: Tensor, a: Tensor, v: Tensor, *, beta: Any = 1, alpha: Any = 1) -> Tensor:
    return _addmm(bias.unsqueeze(-1), a, v.unsqueeze(-1), beta=beta, alpha=alpha).squeeze(-1)


def _reduced(loss: Tensor, reduction: int) -> Tensor:
    return loss if reduction == 0 else (torch.mean(loss) if reduction == 1 else torch.sum(loss))


def _mse(x: Tensor, y: Tensor, reduction: int = 1) -> Tensor:
    return _reduced((x - y) * (x - y), reduction)


def _smooth_l1(x: Tensor, y: Tensor, reduction: int = 1, beta: float = 1.0) -> Tensor:
    d = torch.abs(x - y)
    loss = d if beta == 0 else torch.where(d < beta, 0.5 * d * d / beta, d - 0.5 * beta)
    return _reduced(loss, reduction)


def _huber(x: Tensor, y: Tensor, reduction: int = 1, delta: float = 1.0) -> Tensor:
    d = torch.abs(x - y)
    return _reduced(torch.where(d <= delta, 0.5 * d * d, delta * (d - 0.5 * delta)), reduction)


#: Rows past which torch takes the distances of all pairs from a matrix product.
_FEW_ROWS = 25


def _cdist(a: Tensor, b: Tensor, p: float, mode: int | None) -> Tensor:
    many = a.shape[-2] > _FEW_ROWS or b.shape[-2] > _FEW_ROWS
    if p == 2 and (mode == 1 or (not mode and many)):
        squares = (a * a).sum(-1).unsqueeze(-1) + (b * b).sum(-1).unsqueeze(-2)
        return torch.sqrt(torch.clamp(squares - 2 * torch.matmul(a, b.mT), min=0))
    return _vector_norm(a.unsqueeze(-2) - b.unsqueeze(-3), p, [-1])


def _cdist_backward(grad: Tensor, a: Tensor, b: Tensor, p: float, distance: Tensor) -> Tensor:
    apart = a.unsqueeze(-2) - b.unsqueeze(-3)
    grad, far = grad.unsqueeze(-1), distance.unsqueeze(-1)
    if p == float("inf"):
        share = torch.sign(apart) * (apart.abs() == far)
    elif p == 2:
        share = apart / far
    else:
        share = torch.sign(apart) * torch.pow(apart.abs() / far, p - 1)
    return torch.sum(torch.where(far == 0, 0.0, grad * share), -2)


def _cumprod(x: Tensor, dim: int, *, dtype: Any = None) -> Tensor:
    if not x.dim() or not x.shape[dim]:
        return x.clone()
    out, running = [], None
    for piece in torch.unbind(x, dim):
        running = piece if running is None else running * piece
        out.append(running)
    return torch.stack(out, dim)


TABLE: dict[Any, Decomposition] = {
    aten.sigmoid.default: _sigmoid,
    aten.tanh.default: _tanh,
    aten.softplus.default: _softplus,
    aten.gelu.default: _gelu,
    aten.silu.default: lambda x: x * _sigmoid(x),
    aten.mish.default: lambda x: x * _tanh(_softplus(x)),
    aten.elu.default: _elu,
    aten.hardsigmoid.default: lambda x: torch.clamp(x / 6 + 0.5, 0, 1),
    aten.hardswish.default: lambda x: x * torch.clamp(x / 6 + 0.5, 0, 1),
    # The second is what the backward pass reads.
    aten.log_sigmoid_forward.default: lambda x: (-_softplus(-x), torch.exp(-torch.abs(x))),
    aten.expm1.default: lambda x: torch.exp(x) - 1,
    aten.log1p.default: lambda x: torch.log(1 + x),
    aten._softmax.default: _softmax,
    aten._safe_softmax.default: _safe_softmax,
    aten._log_softmax.default: _log_softmax,
    aten.logsumexp.default: _logsumexp,
    aten.native_layer_norm.default: _layer_norm,
    aten.native_group_norm.default: _group_norm,
    aten.native_batch_norm.default: _batch_norm,
    aten._native_batch_norm_legit.default: _batch_norm,
    aten._native_batch_norm_legit.no_stats: _batch_norm_no_stats,
    aten._native_batch_norm_legit_no_training.default: (
        lambda x, w, b, m, v, momentum, eps: _batch_norm(x, w, b, m, v, False, momentum, eps)
    ),
    aten.var.correction: _var,
    aten.std.correction: lambda x, dim=None, **kw: torch.sqrt(_var(x, dim, **kw)),
    aten.var_mean.correction: lambda x, dim=None, **kw: (
        _var(x, dim, **kw),
        torch.mean(x, dim or list(range(x.dim())), keepdim=kw.get("keepdim", False)),
    ),
    aten.linalg_vector_norm.default: _vector_norm,
    aten.norm.ScalarOpt_dim: lambda x, p, dim, keepdim=False: _vector_norm(
        x, 2 if p is None else float(p), dim or None, keepdim
    ),
    aten.norm.Scalar: lambda x, p=2: _vector_norm(x, float(p)),
    aten.addmm.default: _addmm,
    aten.baddbmm.default: _baddbmm,
    aten.addmv.default: _addmv,
    aten.addcmul.default: lambda x, a, b, *, value=1: x + value * a * b,
    aten.addcdiv.default: lambda x, a, b, *, value=1: x + value * a / b,
    aten.lerp.Scalar: lambda x, y, w: x + w * (y - x),
    aten.lerp.Tensor: lambda x, y, w: x + w * (y - x),
    aten.mse_loss.default: _mse,
    aten.smooth_l1_loss.default: _smooth_l1,
    aten.huber_loss.default: _huber,
    aten.cumprod.default: _cumprod,
    aten._cdist_forward.default: _cdist,
    aten._cdist_backward.default: _cdist_backward,
    aten.rsqrt.default: lambda x: 1 / torch.sqrt(x),
}
