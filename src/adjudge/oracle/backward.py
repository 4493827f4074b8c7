"""The rounding error of backward operations, and of the scatters and resamplings they are made of.

Almost every backward operation is linear in the gradient that it is given. What it adds up for one
element is then bounded by the same operation on absolute values, and the length of the sum by the same
operation on ones.

| operation | error |
| --- | --- |
| convolution_backward | contractions of lengths taps * channels out, and batch * positions |
| scatter, index, embedding, pooling | eps * u_acc * sqrt(n) * sum |g|, n the terms of the element |
| resampling | eps * u_acc * 3 size * sum |g| around: its weights come from float32 coordinates |
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any

import torch
from torch.nn import functional

from adjudge.oracle.rules import Noise

aten = torch.ops.aten
Tensor = torch.Tensor

#: Roundings of a source coordinate, scale * (i + 0.5) - 0.5 with a rounded scale.
_COORDINATE = 3
#: The weights of a cubic kernel (a = -0.75) add up to 1.375 in absolute value at most, in each of two
#: directions.
_CUBIC = 1.375**2


def _of_gradient(noise: Noise, op: Any, grad: Tensor, *rest: Any, **kw: Any) -> Tensor:
    """Linear in the gradient, with weights that are not negative and at most one."""
    terms = op((grad != 0).double(), *rest, **kw)
    return noise.accumulated(op(grad, *rest, **kw), op(grad.abs(), *rest, **kw), terms.clamp(min=1))


def _averaged(noise: Noise, op: Any, grad: Tensor, x: Tensor, *rest: Any) -> Tensor:
    """As `_of_gradient`, with the number of elements of a window divided out of each term."""
    y = op(grad, x, *rest)
    if rest:
        window = prod(rest[0]) if len(rest[0]) > 1 else rest[0][0] ** (x.dim() - 2)
    else:  # Adaptive: windows differ by one element at most, in each direction.
        dims = range(2 - x.dim(), 0)
        window = prod(-(-x.shape[d] // max(1, grad.shape[d])) + 1 for d in dims)
    windows = op(torch.ones_like(grad), x, *rest) * window
    return noise.accumulated(y, op(grad.abs(), x, *rest), windows.clamp(min=1) + 1)


def _convolution_backward(
    noise: Noise, op: Any, grad: Tensor, x: Tensor, w: Tensor, *rest: Any
) -> tuple[Any, ...]:
    """`rest`: bias sizes, stride, padding, dilation, transposed, output padding, groups, mask."""
    transposed, groups = rest[4], rest[6]
    noise.read(grad, x, w)
    found = op(*noise.operands(grad, x, w), *rest)
    sizes = op(grad.abs(), x.abs(), w.abs(), *rest)
    squares: Any = (None, None, None)
    if noise.regime.operand:
        squares = op(grad * grad, x * x, w * w, *rest)
    channels = w.shape[1] if transposed else w.shape[0] // groups
    # In a transposed convolution the input takes the part that the gradient has in a plain one.
    positions = prod(x.shape[2:] if transposed else grad.shape[2:])
    each = grad.shape[0] * prod(grad.shape[2:])
    lengths = (prod(w.shape[2:]) * channels, x.shape[0] * positions, each)
    out: list[Tensor | None] = []
    for index, (y, size, n) in enumerate(zip(found, sizes, lengths, strict=True)):
        if y is None:
            out.append(None)
        elif index < 2:
            out.append(noise.contracted(y, size, squares[index], n))
        else:
            whole = grad.sum([0, *range(2, grad.dim())])
            out.append(noise.summed(whole, size, n))
    return tuple(out)


def _index_put(
    noise: Noise, op: Any, x: Tensor, indices: Any, values: Tensor, accumulate: bool = False
) -> Tensor:
    y = op(x, indices, values, accumulate)
    if not accumulate:
        return y  # type: ignore[no-any-return]
    noise.read(torch.cat((x.flatten(), values.flatten())))
    terms = op(torch.ones_like(x), indices, torch.ones_like(values), True)
    return noise.accumulated(y, op(x.abs(), indices, values.abs(), True), terms)


def _scattered(
    noise: Noise, op: Any, x: Tensor, dim: int, index: Tensor, source: Tensor, *, alpha: Any = 1
) -> Tensor:
    """scatter_add and index_add; where one position is hit often, its sum is long."""
    source = source if alpha == 1 else source * alpha
    terms = op(torch.ones_like(x), dim, index, torch.ones_like(source))
    magnitude = op(x.abs(), dim, index, source.abs())
    noise.read(torch.cat((x.flatten(), source.flatten())))
    return noise.accumulated(op(x, dim, index, source), magnitude, terms)


def _around(values: Tensor, reach: int, fold: str) -> Tensor:
    """The sum or maximum over a neighbourhood in all dimensions but the first two."""
    dims = values.dim() - 2
    pool = (functional.max_pool1d, functional.max_pool2d, functional.max_pool3d)[dims - 1]
    width = 2 * reach + 1
    if fold == "max":
        largest: Tensor = pool(values, width, stride=1, padding=reach)
        return largest
    mean = (functional.avg_pool1d, functional.avg_pool2d, functional.avg_pool3d)[dims - 1]
    total: Tensor = mean(values, width, stride=1, padding=reach) * width**dims
    return total


def _longest(*shapes: Any) -> int:
    return max((int(size) for shape in shapes for size in shape[2:]), default=1)


def _resampled(reach: int, factor: float) -> Callable[..., Tensor]:
    def rule(noise: Noise, op: Any, x: Tensor, *rest: Any) -> Tensor:
        y = op(x, *rest)
        around = _around(x.abs(), reach, "max")
        # Cubic weights are negative too: nearest repeats of the maximum bound what they can add.
        magnitude = factor * functional.interpolate(around, y.shape[2:], mode="nearest")
        wide = _around(magnitude, 1, "max")
        return _offset(noise, y, wide, _longest(x.shape, y.shape))

    return rule


def _resampled_backward(reach: int, factor: float) -> Callable[..., Tensor]:
    def rule(noise: Noise, op: Any, grad: Tensor, *rest: Any) -> Tensor:
        y = op(grad, *rest)
        spread = aten.upsample_nearest1d_backward if grad.dim() == 3 else (
            aten.upsample_nearest2d_backward if grad.dim() == 4 else aten.upsample_nearest3d_backward
        )  # fmt: skip
        total = spread(grad.abs(), list(grad.shape[2:]), list(y.shape))
        near = _around(total, reach + 1, "sum")
        return _offset(noise, y, factor * near, _longest(grad.shape, y.shape))

    return rule


def _offset(noise: Noise, y: Tensor, magnitude: Tensor, size: int) -> Tensor:
    units = noise.regime.accumulate * (_COORDINATE * size + 4)
    return noise.stored(torch.addcmul(y, magnitude, noise.unit(y), value=units))


def _bagged(noise: Noise, op: Any, weight: Tensor, *rest: Any, **kw: Any) -> Any:
    """`rest`: indices, offsets, scale by frequency, mode (sum, mean, max), ..."""
    found = op(weight, *rest, **kw)
    mode = rest[3] if len(rest) > 3 else 0
    if mode == 2:
        return found
    size = op(weight.abs(), *rest, **kw)[0]
    y = noise.summed(found[0], size, max(1, rest[0].numel() // max(1, found[0].shape[0])) + 1)
    return (y, *found[1:])


def _bag_backward(noise: Noise, op: Any, grad: Tensor, *rest: Any, **kw: Any) -> Tensor:
    y = op(grad, *rest, **kw)
    terms = torch.full_like(y, max(1, rest[0].numel()))
    return noise.accumulated(y, op(grad.abs(), *rest, **kw), terms)


def _trilinear(
    noise: Noise, op: Any, a: Tensor, b: Tensor, c: Tensor, *rest: Any, **kw: Any
) -> Tensor:
    """A product of three that is summed over the dimensions of the last list."""
    y = op(*noise.operands(a, b, c), *rest, **kw)
    terms = op(*(torch.ones_like(t) for t in (a, b, c)), *rest, **kw)
    squares = op(a * a, b * b, c * c, *rest, **kw) if noise.regime.operand else None
    n = int(terms.max()) + 1 if terms.numel() else 1
    return noise.contracted(y, op(a.abs(), b.abs(), c.abs(), *rest, **kw), squares, n)


RULES: dict[Any, Callable[..., Any]] = {
    aten.convolution_backward.default: _convolution_backward,
    aten.index_put.default: _index_put,
    aten._unsafe_index_put.default: _index_put,
    aten.scatter_add.default: _scattered,
    aten.index_add.default: _scattered,
    aten.embedding_dense_backward.default: _of_gradient,
    aten.max_pool2d_with_indices_backward.default: _of_gradient,
    aten.max_pool3d_with_indices_backward.default: _of_gradient,
    aten.adaptive_max_pool2d_backward.default: _of_gradient,
    aten.adaptive_max_pool3d_backward.default: _of_gradient,
    aten.replication_pad1d_backward.default: _of_gradient,
    aten.replication_pad2d_backward.default: _of_gradient,
    aten.replication_pad3d_backward.default: _of_gradient,
    aten.reflection_pad1d_backward.default: _of_gradient,
    aten.reflection_pad2d_backward.default: _of_gradient,
    aten.reflection_pad3d_backward.default: _of_gradient,
    aten.upsample_nearest1d_backward.default: _of_gradient,
    aten.upsample_nearest2d_backward.default: _of_gradient,
    aten.upsample_nearest3d_backward.default: _of_gradient,
    aten.unfold_backward.default: _of_gradient,
    aten.col2im.default: _of_gradient,
    aten.avg_pool2d_backward.default: _averaged,
    aten.avg_pool3d_backward.default: _averaged,
    aten._adaptive_avg_pool2d_backward.default: _averaged,
    aten._adaptive_avg_pool3d_backward.default: _averaged,
    aten.upsample_linear1d.default: _resampled(1, 1.0),
    aten.upsample_bilinear2d.default: _resampled(1, 1.0),
    aten.upsample_trilinear3d.default: _resampled(1, 1.0),
    aten.upsample_bicubic2d.default: _resampled(2, _CUBIC),
    aten.upsample_linear1d_backward.default: _resampled_backward(1, 1.0),
    aten.upsample_bilinear2d_backward.default: _resampled_backward(1, 1.0),
    aten.upsample_trilinear3d_backward.default: _resampled_backward(1, 1.0),
    aten.upsample_bicubic2d_backward.default: _resampled_backward(2, _CUBIC),
    aten._embedding_bag.default: _bagged,
    aten._embedding_bag_forward_only.default: _bagged,
    aten._embedding_bag_dense_backward.default: _bag_backward,
    aten._embedding_bag_backward.default: _bag_backward,
    aten._trilinear.default: _trilinear,
}

#: Operations that select, move or draw.
EXACT: frozenset[str] = frozenset(
    "adaptive_max_pool2d adaptive_max_pool3d hardshrink softshrink hardshrink_backward "
    "softshrink_backward threshold_backward slice_scatter select_scatter diagonal_scatter "
    "select_backward slice_backward diagonal_backward max_pool1d replication_pad1d replication_pad3d "
    "reflection_pad3d upsample_nearest1d upsample_nearest3d pixel_unshuffle rand_like randn_like "
    "rand randn uniform normal as_strided_scatter channel_shuffle native_channel_shuffle mode median "
    "nanmedian take max_unpool3d _unsafe_index sgn frac".split()
)
