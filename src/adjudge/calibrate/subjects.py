"""For each gate with a derived bound: an operation, honest implementations of it, and real defects.

All take the inputs as they are drawn (and, where gradients are judged, the cotangent) and answer in
the storage dtype. Defects are those that were met in the field: narrow accumulators and factors, dropped
last terms, formulas that cancel, constants and epsilons that are nearly right.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import torch
from torch import Tensor

from adjudge.inputs.levels import DRIFTS

Implementation = Callable[..., Tensor]


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    gate: str
    #: The gate of whose calibration pair the reference is taken, or a program's text.
    reference: str
    #: Sizes by symbol, in place of the native ones.
    sizes: Mapping[str, int] = field(default_factory=dict)
    #: Factors of the probe by name.
    factors: Mapping[str, str] = field(default_factory=dict)
    honest: Mapping[str, Implementation]
    defects: Mapping[str, Implementation]


def kept(x: Tensor, bits: int) -> Tensor:
    """Each value rounded to that many significant bits, ties to even."""
    mantissa, exponent = torch.frexp(x.double())
    return torch.ldexp(torch.round(mantissa * 2.0**bits) / 2.0**bits, exponent).float()


def running(
    x: Tensor, block: int, narrow: Callable[[Tensor], Tensor] = lambda total: total
) -> Tensor:
    """Sum over the first axis block by block, the total passed through `narrow` after each."""
    total = torch.zeros_like(x[0])
    for part in torch.split(x, block):
        total = narrow(total + part.sum(dim=0))
    return total


def pairwise(x: Tensor) -> Tensor:
    """Sum over the first axis by halves."""
    if len(x) < 2:
        return x.sum(dim=0)
    return pairwise(x[: len(x) // 2]) + pairwise(x[len(x) // 2 :])


def product(a: Tensor, b: Tensor, narrow: Callable[[Tensor], Tensor], block: int = 1) -> Tensor:
    """Matrix product with its running total passed through `narrow` after each block of terms."""
    total = torch.zeros(a.shape[0], b.shape[1])
    for first in range(0, a.shape[1], block):
        total = narrow(total + a[:, first : first + block] @ b[first : first + block])
    return total


def cut(x: Tensor, bits: int) -> Tensor:
    """Each value cut toward zero to that many significant bits."""
    mantissa, exponent = torch.frexp(x.double())
    return torch.ldexp(torch.trunc(mantissa * 2.0**bits) / 2.0**bits, exponent).float()


def half(x: Tensor) -> Tensor:
    return x.half().float()


def brain(x: Tensor) -> Tensor:
    return x.bfloat16().float()


def without_last(x: Tensor) -> Tensor:
    """The values with the last row zero."""
    return torch.cat([x[:-1], torch.zeros_like(x[-1:])])


def _gelu_tanh(x: Tensor) -> Tensor:
    return torch.nn.functional.gelu(x, approximate="tanh")


def _norm(
    x: Tensor, total: Callable[[Tensor], Tensor], eps: float = 1e-5, extra: int = 0
) -> Tensor:
    n = x.shape[1]
    mean = total(x.T)[:, None] / n
    squares = total(((x - mean) ** 2).T)[:, None] + extra * mean**2
    return (x - mean) * torch.rsqrt(squares / n + eps)


def _rms(x: Tensor, total: Callable[[Tensor], Tensor], eps: float = 1e-6) -> Tensor:
    wide = x.float()
    mean = total((wide * wide).T)[:, None] / x.shape[1]
    return (wide * torch.rsqrt(mean + eps)).to(x.dtype)


def _variance(x: Tensor, total: Callable[[Tensor], Tensor]) -> Tensor:
    mean = total(x.T) / x.shape[1]
    return total(((x - mean[:, None]) ** 2).T) / x.shape[1]


def _welford(x: Tensor) -> Tensor:
    mean, squares = torch.zeros(len(x)), torch.zeros(len(x))
    for count, value in enumerate(x.T, 1):
        off = value - mean
        mean = mean + off / count
        squares = squares + off * (value - mean)
    return squares / x.shape[1]


def _one_pass(x: Tensor) -> Tensor:
    return (x * x).mean(dim=1) - x.mean(dim=1) ** 2


def _pulled(x: Tensor, g: Tensor, total: Callable[[Tensor], Tensor]) -> Tensor:
    s = torch.softmax(x, dim=1)
    return s * (g - total((g * s).T)[:, None])


def _scaled(x: Tensor, extra: float = 0.0, least: float = 1e-12) -> Tensor:
    return x / (x.abs().amax(dim=1, keepdim=True).clamp(min=least) + extra)


#: A convolution, which may take its operands in tf32, and the mean of each channel, in which what a
#: weight has lost does not average out.
_AVERAGED = """
import torch

images, inside, channels, pixels = 4, 8, 128, 16

class Model(torch.nn.Module):
    def forward(self, x, w):
        return torch.nn.functional.conv2d(x, w).mean((0, 2, 3))

def get_inputs():
    return [torch.randn(images, inside, pixels, pixels), torch.randn(channels, inside, 3, 3)]

def get_init_inputs():
    return []
"""


def _averaged(x: Tensor, w: Tensor) -> Tensor:
    return torch.nn.functional.conv2d(x, w).mean((0, 2, 3))


def _uncounted(x: Tensor, w: Tensor) -> Tensor:
    y = torch.nn.functional.conv2d(x, w)
    return y[..., :-1].sum((0, 2, 3)) / (y.numel() / y.shape[1])


_ORDERS: dict[str, Callable[[Tensor], Tensor]] = {
    "one after the other": lambda x: running(x, 1),
    "from the end": lambda x: running(x.flip(0), 1),
    "blocks of 32": lambda x: running(x, 32),
    "by halves": pairwise,
}


def _ordered(
    f: Callable[[Tensor, Callable[[Tensor], Tensor]], Tensor],
) -> dict[str, Implementation]:
    return {name: lambda x, order=order: f(x, order) for name, order in _ORDERS.items()}


SUBJECTS: tuple[Subject, ...] = (
    Subject(
        gate="wrong-value",
        reference="wrong-value",
        factors={"distribution": "normal"},
        honest={
            "by erf": lambda x: 0.5 * x * (1 + torch.erf(x * 2**-0.5)),
            "by erfc": lambda x: 0.5 * x * torch.erfc(-x * 2**-0.5),
            "in float64": lambda x: torch.nn.functional.gelu(x.double()).float(),
        },
        defects={
            "tanh approximation": _gelu_tanh,
            "a constant of four digits": lambda x: 0.5 * x * (1 + torch.erf(x * 0.7071)),
            "last row not written": lambda x: without_last(torch.nn.functional.gelu(x)),
            "stored as float16 between": lambda x: half(torch.nn.functional.gelu(x)),
        },
    ),
    Subject(
        gate="wrong-value",
        reference=_AVERAGED,
        factors={"distribution": "positive"},
        honest={
            "factors rounded to tf32": lambda x, w: _averaged(kept(x, 11), kept(w, 11)),
            "factors cut to tf32": lambda x, w: _averaged(cut(x, 11), cut(w, 11)),
            "weights rounded to tf32": lambda x, w: _averaged(x, kept(w, 11)),
            "by an unfolded product": lambda x, w: (
                w.flatten(1) @ torch.nn.functional.unfold(x, 3)
            ).mean((0, 2)),
        },
        defects={
            "bfloat16 factors": lambda x, w: _averaged(brain(x), brain(w)),
            "bfloat16 weights": lambda x, w: _averaged(x, brain(w)),
            "factors cut to bfloat16": lambda x, w: _averaged(cut(x, 8), cut(w, 8)),
            "last column not added": _uncounted,
        },
    ),
    Subject(
        gate="wrong-gradient",
        reference="wrong-gradient",
        factors={"cotangent": "random"},
        honest={
            name: lambda x, g, order=order: _pulled(x, g, order) for name, order in _ORDERS.items()
        },
        defects={
            "last term of the sum dropped": lambda x, g: _pulled(
                x, g, lambda t: without_last(t).sum(dim=0)
            ),
            "float16 accumulator": lambda x, g: _pulled(x, g, lambda t: running(t, 1, half)),
            "bfloat16 cotangent": lambda x, g: _pulled(x, brain(g), lambda t: t.sum(dim=0)),
            "cotangent read transposed": lambda x, g: _pulled(
                x, g.T.reshape(g.shape), lambda t: t.sum(dim=0)
            ),
        },
    ),
    Subject(
        gate="shape-dependent",
        reference="shape-dependent",
        sizes={"columns": 100},
        honest=_ordered(_norm),
        defects={
            "28 padded lanes add the square of the mean": lambda x: _norm(x, pairwise, extra=28),
            "epsilon of 1e-6 for 1e-5": lambda x: _norm(x, pairwise, 1e-6),
            "last column dropped from sums": lambda x: _norm(
                x, lambda t: without_last(t).sum(dim=0)
            ),
        },
    ),
    Subject(
        gate="order-bound",
        reference="order-bound",
        sizes={"rows": 1024},
        factors={"distribution": "positive"},
        honest=dict(_ORDERS),
        defects={
            "float16 total from block to block": lambda x: running(x, 64, half),
            "bfloat16 total from block to block": lambda x: running(x, 64, brain),
            "last row dropped": lambda x: without_last(x).sum(dim=0),
        },
    ),
    Subject(
        gate="schedule-dependent",
        reference="order-bound",
        honest={
            f"configuration of {block} rows": lambda x, block=block: running(x, block)
            for block in (1, 16, 48, 256)
        },
        defects={
            "a configuration that drops the remainder": lambda x: running(
                x[: len(x) // 48 * 48], 48
            ),
            "a configuration that adds in float16": lambda x: running(x, 16, half),
        },
    ),
    Subject(
        gate="dtype-regime",
        reference="dtype-regime",
        # A dropped one of n squares moves the answer by 1 / 2n: storage hides it past 256 columns.
        sizes={"columns": 128},
        factors={"dtype": "float16"},
        honest=_ordered(_rms),
        defects={
            "bfloat16 between": lambda x: _rms(x, lambda t: t.sum(dim=0)).bfloat16().half(),
            "last column dropped from the sum": lambda x: _rms(
                x, lambda t: without_last(t).sum(dim=0)
            ),
            "epsilon of 1e-2 for 1e-6": lambda x: _rms(x, pairwise, 1e-2),
        },
    ),
    Subject(
        gate="dtype-regime",
        reference="dtype-regime",
        sizes={"columns": 128},
        factors={"dtype": "float16", "distribution": DRIFTS["float16"]},
        honest=_ordered(_rms),
        defects={
            "float16 accumulator": lambda x: _rms(x, lambda t: running(t, 1, half)),
            "float16 accumulator, from the end": lambda x: _rms(
                x, lambda t: running(t.flip(0), 1, half)
            ),
        },
    ),
    Subject(
        gate="dtype-regime",
        reference="dtype-regime",
        sizes={"columns": 128},
        factors={"dtype": "bfloat16", "distribution": DRIFTS["bfloat16"]},
        honest=_ordered(_rms),
        defects={"bfloat16 accumulator": lambda x: _rms(x, lambda t: running(t, 1, brain))},
    ),
    Subject(
        gate="narrow-accumulator",
        reference="narrow-accumulator",
        honest={
            "one after the other": lambda a, b: product(a, b, lambda t: t),
            "blocks of 16": lambda a, b: product(a, b, lambda t: t, 16),
            "from the end": lambda a, b: product(a.flip(1), b.flip(0), lambda t: t),
            "in float64": lambda a, b: (a.double() @ b.double()).float(),
        },
        defects={
            "float16 accumulator": lambda a, b: product(a, b, half),
            "bfloat16 accumulator": lambda a, b: product(a, b, brain),
            "tf32 factors": lambda a, b: kept(a, 11) @ kept(b, 11),
            "bfloat16 factors": lambda a, b: brain(a) @ brain(b),
            "last term dropped": lambda a, b: a[:, :-1] @ b[:-1],
        },
    ),
    Subject(
        gate="cancellation",
        reference="cancellation",
        factors={"distribution": "offset-1000"},
        honest={**_ordered(_variance), "Welford": _welford},
        defects={
            "one pass, a difference of squares": _one_pass,
            "divided by n - 1": lambda x: x.var(dim=1),
        },
    ),
    Subject(
        gate="scale-variant",
        reference="scale-variant",
        factors={"special": "scaled:-24@0"},
        honest={
            "division": _scaled,
            "by the reciprocal": lambda x: x * (1 / x.abs().amax(dim=1, keepdim=True)),
        },
        defects={
            "1e-12 added": lambda x: _scaled(x, 1e-12),
            "1e-8 added": lambda x: _scaled(x, 1e-8),
            "clamped at 1e-6": lambda x: _scaled(x, least=1e-6),
        },
    ),
    Subject(
        gate="layout-dependent",
        reference="layout-dependent",
        factors={"layout": "transposed"},
        honest={
            "by sigmoid": lambda x: x * torch.sigmoid(x),
            "by exp": lambda x: x / (1 + torch.exp(-x)),
            "by tanh": lambda x: 0.5 * x * (1 + torch.tanh(0.5 * x)),
        },
        defects={
            "rows of memory for rows": lambda x: (x * torch.sigmoid(x)).T.reshape(x.shape),
            "one row off at the end": lambda x: without_last(x * torch.sigmoid(x)),
        },
    ),
)
