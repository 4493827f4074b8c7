"""The rounding error that each primitive operation may commit in a regime.

u is the unit roundoff, eps uniform in [-1, 1] and fresh for each element:

| operation | error |
| --- | --- |
| elementwise | eps * c * u_store * |y|, c in units of rounding |
| operands of a contraction | eps * u_operand * |a|, the same wherever that value is read |
| contraction of length K | eps * u_acc * sqrt(K) * (|A| |B|), eps * 2^(1/2) u_operand (A^2 B^2)^(1/2) |
| sum, mean, cumsum of length n | eps * u_acc * sqrt(n) * sum |x| |
| movement, comparison, selection | none |

The worst-case variant has n in place of sqrt(n).

A rounding that many outputs share does not average out in a mean over them. So values carry the errors
themselves (those stored, and operands), and what is shared stays so.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from functools import lru_cache
from math import isfinite, prod, sqrt
from typing import Any

import numpy as np
import torch

from adjudge.oracle.regimes import Regime
from adjudge.oracle.repeats import Repeats

aten = torch.ops.aten
Tensor = torch.Tensor
#: Gives a result by its name, made by what comes with it where it was not made before.
Parts = Callable[[str, Callable[[], Tensor]], Tensor]

#: Rounding errors are taken this many times as large where a choice (an index, a mask, a step of a
#: narrow dtype) hangs on them: a uniform error seldom reaches its own bound, and a few dozen runs must
#: find the ones that do.
BLUR = 8

#: Uniform draws kept ready. Each use starts at a place of its own, so that errors of different
#: operations are as good as independent; drawing them anew would be half the oracle's time.
_POOL = 1 << 20
#: Draws among which a rounding of an operand is taken by its value: as many as a core's cache holds.
_BY_VALUE = 1 << 16
#: 2**64 over the golden ratio (Knuth, The Art of Computer Programming, volume 3, section 6.4).
_GOLDEN = 0x9E3779B97F4A7C15 - (1 << 64)


@lru_cache(maxsize=1)
def _pool() -> Tensor:
    generator = torch.Generator().manual_seed(_POOL)
    return torch.rand(_POOL, generator=generator, dtype=torch.float64).mul_(2).sub_(1)


class Noise:
    """Draws the errors of one run.

    Args:
        repeats: what runs of the same reference have in common.
    """

    def __init__(
        self, regime: Regime, seed: int, *, worst: bool, repeats: Repeats | None = None
    ) -> None:
        self.regime = regime
        self.worst = worst
        self._places = random.Random(seed)
        self._salt = random.Random(~seed).getrandbits(62)
        self._repeats = repeats
        self._turn = 0

    def unit(self, like: Tensor) -> Tensor:
        """Uniform in [-1, 1], one for each element; not to be written to."""
        n = like.numel()
        if n > _POOL // 2:
            # Torch's own generator takes some twenty times as long.
            fast = np.random.Generator(np.random.SFC64(self._places.getrandbits(62)))
            return torch.from_numpy(fast.random(n)).view(like.shape).mul_(2).sub_(1)
        start = self._places.randrange(_POOL - n)
        return _pool()[start : start + n].view(like.shape)

    def parts(self, what: Any, *operands: Tensor) -> Parts:
        """Gives the results of a contraction by name, those of an earlier run where it was the same: not
        to be written to.

        Args:
            what: the operation and its settings.
        """
        turn, self._turn = self._turn, self._turn + 1
        repeats = self._repeats
        held = repeats.at(turn, what, operands) if repeats is not None else None
        if repeats is None or held is None:
            return lambda name, part: part()
        return lambda name, part: repeats.part(held, name, part)

    def length(self, n: int) -> float:
        n = max(n, 1)
        return float(n) if self.worst else sqrt(n)

    def read(self, *operands: Tensor) -> None:
        """Told of what a contraction or a sum reads."""

    def averages(self, n: int) -> None:
        """Told that the sum of what was read last is divided by n."""

    def applied(self, name: str, *operands: Any) -> Tensor | None:
        """Told of what a function is applied to; where its result is kept, or None for everywhere."""
        return None

    def operands(self, *given: Tensor) -> tuple[Tensor, ...]:
        """What a product reads of its operands.

        Equal values are rounded alike, wherever they are read: what a weight loses is lost at every
        output that the weight has a part in, and does not average out in a mean over them.
        """
        return tuple(x * self._factors(x) for x in given) if self.regime.operand else given

    def _factors(self, x: Tensor) -> Tensor:
        """1 + u_operand * eps, eps uniform in [-1, 1] by the value."""
        hashed = x.contiguous().view(torch.int64) * _GOLDEN
        # The upper bits depend on all bits of the value.
        places = hashed.add_(self._salt).bitwise_right_shift_(44).bitwise_and_(_BY_VALUE - 1)
        return _pool()[places].mul_(self.regime.operand).add_(1.0)

    def stored(self, y: Tensor, c: float = 1.0) -> Tensor:
        """`y` after one rounding to storage of weight c."""
        return _kept(torch.addcmul(y, y, self.unit(y), value=c * self.regime.store), y)

    def before_step(self, y: Tensor, native: torch.dtype) -> Tensor:
        """`y` as it may come to be rounded to a step of a narrow dtype or of the integers: which of
        two steps an honest kernel takes hangs on errors that 32 runs seldom show.

        What the native dtype holds was not computed with an error (an input, a number already
        rounded), and every kernel rounds it alike.
        """
        if not self.regime.store:
            return y
        moved = (y != y.to(native).to(y.dtype)) & y.isfinite()
        blurred = torch.addcmul(y, y, self.unit(y), value=BLUR * self.regime.store)
        return torch.where(moved, blurred, y)

    def summed(self, y: Tensor, magnitude: Tensor, n: int, squares: Tensor | None = None) -> Tensor:
        """`y`, a sum of n terms whose absolute values add up to `magnitude`, and whose squares to
        `squares` where the terms are cut to the operands' precision too."""
        size = self.regime.accumulate * self.length(n)
        out = torch.addcmul(y, magnitude, self.unit(y), value=size)
        if squares is not None:
            root = squares.clamp(min=0).sqrt()
            out = torch.addcmul(out, root, self.unit(y), value=2 * self.regime.operand)
        return _kept(self.stored(out), y)

    def contracted(self, y: Tensor, magnitude: Tensor, squares: Tensor | None, n: int) -> Tensor:
        """`y`, products of n terms each whose absolute values add up to `magnitude`, formed of what
        `operands` gave; `squares`, sums of the squares of those terms, where operands are rounded.

        A kernel may also round what it makes of an operand (scaled, or transformed tile by tile), for
        each output otherwise. That adds as much again, so that both come to 2 u_operand.
        """
        size = self.regime.accumulate * self.length(n)
        out = torch.addcmul(y, magnitude, self.unit(y), value=size)
        if squares is not None:
            root = squares.clamp(min=0).sqrt()
            out = torch.addcmul(out, root, self.unit(y), value=sqrt(2) * self.regime.operand)
        return _kept(self.stored(out), y)

    def accumulated(self, y: Tensor, magnitude: Tensor, terms: Tensor) -> Tensor:
        """`y`, each element of it a sum of its own number of terms, kept in the memory of the result:
        torch itself adds to it there, so that in half precision the sum is stored after each term."""
        unit = max(self.regime.accumulate, self.regime.store)
        size = unit * (terms if self.worst else terms.sqrt())
        return _kept(self.stored(y + magnitude * size * self.unit(y)), y)


def _kept(noisy: Tensor, y: Tensor) -> Tensor:
    """`noisy` with the infinities of `y` as they are: rounding leaves them alone, and a mask of -inf
    must not turn into NaN by an error added to it."""
    # A sum is finite only where all its terms are, and takes a fifth of looking at each.
    if isfinite(y.sum().item()):
        return noisy
    return torch.where(y.isfinite(), noisy, y)


class Silence(Noise):
    """Commits no error: the decomposed program itself."""

    def __init__(self) -> None:
        super().__init__(Regime("exact", 0.0, 0.0, 0.0), 0, worst=False)

    def stored(self, y: Tensor, c: float = 1.0) -> Tensor:
        return y

    def summed(self, y: Tensor, magnitude: Tensor, n: int, squares: Tensor | None = None) -> Tensor:
        return y

    def contracted(self, y: Tensor, magnitude: Tensor, squares: Tensor | None, n: int) -> Tensor:
        return y

    def accumulated(self, y: Tensor, magnitude: Tensor, terms: Tensor) -> Tensor:
        return y


class Cutting(Silence):
    """Commits no error but that of tensor cores, which read of a float32 operand the upper 19 bits."""

    def operands(self, *given: Tensor) -> tuple[Tensor, ...]:
        return tuple(map(_cut, given))


def _cut(x: Tensor) -> Tensor:
    """Cut to 11 significant bits toward zero, after the rounding to float32."""
    narrow = x.float().contiguous().view(torch.int32).bitwise_and(-(1 << 13)).view(torch.float32)
    return torch.where(narrow.isfinite(), narrow.double(), x)


def _count(x: Tensor, dims: Any) -> int:
    if dims is None or (isinstance(dims, (list, tuple)) and not dims):
        return x.numel()
    return prod(x.shape[d] for d in ([dims] if isinstance(dims, int) else dims))


def _product(noise: Noise, op: Callable[..., Tensor], a: Tensor, b: Tensor, *rest: Any) -> Tensor:
    n = a.shape[-1]
    noise.read(a, b)
    part, squares = noise.parts((op, rest), a, b), None
    if noise.regime.operand:
        squares = part("squares", lambda: op(a * a, b * b))
    y = _of_operands(noise, part, op, a, b)
    return noise.contracted(y, part("magnitude", lambda: op(a.abs(), b.abs())), squares, n)


def _of_operands(noise: Noise, part: Parts, op: Any, a: Tensor, b: Tensor, *rest: Any) -> Tensor:
    read = noise.operands(a, b)
    if read[0] is a and read[1] is b:
        return part("y", lambda: op(a, b, *rest))
    # What operands are rounded to differs from run to run.
    return op(*read, *rest)  # type: ignore[no-any-return]


def _convolution(noise: Noise, op: Any, x: Tensor, w: Tensor, bias: Any, *rest: Any) -> Tensor:
    transposed = rest[3]
    groups = rest[5]
    taps = prod(w.shape[2:])
    noise.read(x, w)
    n = taps * (x.shape[1] // groups if transposed else w.shape[1])
    part, squares = noise.parts((op, rest), x, w), None
    if noise.regime.operand:
        squares = part("squares", lambda: op(x * x, w * w, None, *rest))
    y = _of_operands(noise, part, op, x, w, None, *rest)
    magnitude = part("magnitude", lambda: op(x.abs(), w.abs(), None, *rest))
    y = noise.contracted(y, magnitude, squares, n)
    if bias is None:
        return y
    return noise.stored(y + bias.reshape(1, -1, *[1] * (y.dim() - 2)))


def _sum(noise: Noise, op: Any, x: Tensor, dims: Any = None, *rest: Any, **kw: Any) -> Tensor:
    args = (dims, *rest) if dims is not None or rest else ()
    kw = {k: v for k, v in kw.items() if k != "dtype"}
    noise.read(x)
    if op in (aten.mean.default, aten.mean.dim):
        noise.averages(_count(x, dims))
    squares = op(x * x, *args, **kw) if noise.regime.reads_sums else None
    return noise.summed(op(x, *args, **kw), op(x.abs(), *args, **kw), _count(x, dims), squares)


def _cumsum(noise: Noise, op: Any, x: Tensor, dim: int, **kw: Any) -> Tensor:
    if not x.dim():
        return x.clone()
    noise.read(x)
    return noise.summed(op(x, dim), op(x.abs(), dim), x.shape[dim])


def _prod(noise: Noise, op: Any, x: Tensor, dim: Any = None, *rest: Any, **kw: Any) -> Tensor:
    args = (dim, *rest) if dim is not None else ()
    y = op(x, *args)
    return noise.stored(y, noise.length(_count(x, dim)))


def _pooled(noise: Noise, op: Any, x: Tensor, *rest: Any, **kw: Any) -> Tensor:
    """Averages over windows: the window's size bounds the length of the sum."""
    y = op(x, *rest, **kw)
    window = max(1, x.numel() // max(y.numel(), 1))
    if rest and isinstance(rest[0], (list, tuple)):
        window = max(window, prod(rest[0]))
    return noise.summed(y, op(x.abs(), *rest, **kw), window)


def _exponential(noise: Noise, op: Any, x: Tensor) -> Tensor:
    """Hardware has powers of two: the product with log2(e), itself a rounded number, is rounded before
    the power is taken, which costs |x| roundings (33 units in the last place at x = 88, recorded on an
    H200)."""
    y = noise.stored(op(noise.stored(x, 1.25)), FUNCTIONS["exp"])
    kept = noise.applied("exp", x)
    return y if kept is None else torch.where(kept, y, torch.nan)


SPECIAL: dict[Any, Callable[..., Any]] = {
    aten.mm.default: _product,
    aten.bmm.default: _product,
    aten.mv.default: _product,
    aten.dot.default: _product,
    aten.convolution.default: _convolution,
    aten.sum.default: _sum,
    aten.sum.dim_IntList: _sum,
    aten.mean.default: _sum,
    aten.mean.dim: _sum,
    aten.cumsum.default: _cumsum,
    aten.prod.default: _prod,
    aten.prod.dim_int: _prod,
    aten.avg_pool1d.default: _pooled,
    aten.avg_pool2d.default: _pooled,
    aten.avg_pool3d.default: _pooled,
    aten._adaptive_avg_pool2d.default: _pooled,
    aten._adaptive_avg_pool3d.default: _pooled,
    aten.exp.default: _exponential,
}

#: Weight of one rounding for functions: documented maximum error of CUDA's float32 functions in
#: units in the last place (CUDA C++ Programming Guide, mathematical functions), with the
#: approximations that Triton emits by default for exp, log, sqrt and division.
FUNCTIONS: dict[str, float] = {
    "exp": 2.0, "exp2": 2.0, "log": 2.0, "log2": 2.0, "log10": 3.0, "sin": 2.0, "cos": 2.0,
    "tan": 4.0, "asin": 2.0, "acos": 2.0, "atan": 2.0, "atan2": 3.0, "sinh": 3.0, "cosh": 2.0,
    "erf": 2.0, "erfc": 4.0, "erfinv": 4.0, "lgamma": 6.0, "pow": 4.0, "sqrt": 1.0,
    "reciprocal": 1.0, "add": 1.0, "sub": 1.0, "rsub": 1.0, "mul": 1.0, "div": 2.0, "neg": 0.0,
    "fmod": 1.0, "remainder": 1.0, "leaky_relu": 1.0, "_prelu_kernel": 1.0, "square": 1.0,
    "hypot": 2.0,
}  # fmt: skip

#: Operations that move, compare or select, and so are exact.
EXACT: frozenset[str] = frozenset(
    "view _unsafe_view reshape transpose t permute expand squeeze unsqueeze slice select split "
    "split_with_sizes unbind alias detach clone copy contiguous cat stack index index_select gather "
    "scatter where relu relu6 clamp clamp_min clamp_max maximum minimum max min amax amin argmax "
    "argmin sort topk abs sign floor ceil round trunc eq ne lt le gt ge logical_and logical_or "
    "logical_not isnan isinf isfinite max_pool2d_with_indices max_pool3d_with_indices flip roll "
    "constant_pad_nd reflection_pad1d reflection_pad2d replication_pad2d tril triu diagonal "
    "as_strided embedding masked_fill index_put hardtanh threshold repeat narrow fill zero "
    "zeros ones full empty zeros_like ones_like full_like empty_like new_zeros new_ones new_full "
    "new_empty arange eye scalar_tensor lift_fresh cummax cummin one_hot nonzero masked_select "
    "unfold im2col bitwise_and bitwise_or bitwise_not any all upsample_nearest2d kthvalue diag_embed "
    "_to_copy neg empty_strided aminmax unfold_copy searchsorted bucketize pixel_shuffle "
    "_local_scalar_dense item histc bincount tril_indices triu_indices linspace max_unpool2d "
    "fmax fmin isin unique_consecutive _unique2 logical_xor bernoulli native_dropout set_ "
    "resize_".split()
)

#: Operations that round to the integers.
STEPS: frozenset[str] = frozenset(("round", "floor", "ceil", "trunc"))

#: Operations that carry the sign of a zero through, whatever the order of work. Negation is not one:
#: Triton writes it as a subtraction from +0.
SIGNED: frozenset[str] = frozenset(
    "mul div view _unsafe_view reshape transpose t permute expand squeeze unsqueeze slice select "
    "split split_with_sizes unbind alias detach clone copy contiguous cat stack index_select gather "
    "flip roll repeat narrow _to_copy unfold as_strided lift_fresh".split()
)
