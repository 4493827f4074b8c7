"""Inputs on which every honest kernel gives the same bits, whatever the order of its sums.

Where all values are integers and all sums of absolute values stay below 2**24, float32 holds every
partial sum of every order, and every product, without rounding. An accumulator of float16 or bfloat16
does not, nor do operands cut to tf32.
"""

from __future__ import annotations

from math import ceil, isfinite, log2
from typing import Any

import torch

from adjudge.oracle.rules import EXACT, Silence

#: Integers of smaller size have a float32 each, sums of them too.
_LIMIT = 2.0**24
#: Elements looked at together.
_PART = 1 << 14
#: Arithmetic whose result on integers every implementation gives exactly. Division, means and
#: functions are not in it (a reciprocal may stand in for them), nor are convolutions (a transform may).
_ARITHMETIC = frozenset(
    "add sub rsub mul square mm bmm mv dot addmm baddbmm sum cumsum scatter_add index_add".split()
)
#: Those that add one element to another: a loop of them is a sum.
_ADDITIONS = frozenset("add sub rsub".split())

#: Of the operations that move or select values, those that no comparison with a NaN misleads; and the
#: functions of which `Traced` knows when they are exact.
_CARRYING = frozenset(
    "view _unsafe_view reshape transpose t permute expand squeeze unsqueeze slice select split "
    "split_with_sizes unbind alias detach clone copy contiguous cat stack index_select gather where "
    "masked_fill tril triu amax repeat _to_copy neg zeros ones full empty zeros_like ones_like "
    "full_like empty_like new_zeros new_ones new_full new_empty arange fill zero lift_fresh logical_not "
    "scalar_tensor clamp clamp_min _softmax _safe_softmax exp div scaled_dot_product_attention "
    "_scaled_dot_product_attention_math _scaled_dot_product_flash_attention_for_cpu".split()
)


class _Noting(Silence):
    """Commits no error, and looks at what is added up: a contraction is a sum, and so is what is kept in
    the memory of the result."""

    def contracted(
        self, y: torch.Tensor, magnitude: torch.Tensor, squares: torch.Tensor | None, n: int
    ) -> torch.Tensor:
        return self.summed(y, magnitude, n)

    def accumulated(
        self, y: torch.Tensor, magnitude: torch.Tensor, terms: torch.Tensor
    ) -> torch.Tensor:
        return self.summed(y, magnitude, int(terms.max()) if terms.numel() else 0)


class Exactness(_Noting):
    """Commits no error, and notes whether any honest kernel could."""

    def __init__(self) -> None:
        super().__init__()
        self.holds = True

    def stored(self, y: torch.Tensor, c: float = 1.0) -> torch.Tensor:
        self.holds = self.holds and are_integers(y)
        return y

    def summed(
        self,
        y: torch.Tensor,
        magnitude: torch.Tensor,
        n: int,
        squares: torch.Tensor | None = None,
    ) -> torch.Tensor:
        self.holds = self.holds and are_integers(magnitude)
        return self.stored(y)


class Traced(_Noting):
    """Commits no error, and makes a NaN of every value that an honest kernel of half precision may give
    other bits: what is no NaN in the end, every such kernel gives exactly.

    Exact are sums that float32 holds in any order, whatever the half precision holds after it is rounded
    to that; sums kept in the memory of the result that the half precision holds in any order; exp(0),
    and what is divided by a power of two.

    Args:
        native: the half precision.
    """

    def __init__(self, native: torch.dtype) -> None:
        super().__init__()
        self._native = native
        self._unit = 0.0

    def read(self, *operands: torch.Tensor) -> None:
        self._unit = unit_of(*operands)

    def applied(self, name: str, *operands: Any) -> torch.Tensor | None:
        given = [x for x in operands if isinstance(x, torch.Tensor)]
        if name == "exp":
            return (given[0] == 0) | torch.isneginf(given[0])
        if name == "div" and len(operands) == 2:
            return _is_power(operands[1]) | (torch.as_tensor(operands[0]) == 0)
        return None

    def stored(self, y: torch.Tensor, c: float = 1.0) -> torch.Tensor:
        return torch.where(y == y.to(self._native).to(y.dtype), y, torch.nan)

    def summed(
        self,
        y: torch.Tensor,
        magnitude: torch.Tensor,
        n: int,
        squares: torch.Tensor | None = None,
    ) -> torch.Tensor:
        return self.stored(torch.where(magnitude <= _LIMIT * self._unit, y, torch.nan))

    def accumulated(
        self, y: torch.Tensor, magnitude: torch.Tensor, terms: torch.Tensor
    ) -> torch.Tensor:
        # Integers up to 2 / eps have a number of the dtype each.
        held = 2 / torch.finfo(self._native).eps * self._unit
        return self.stored(torch.where(magnitude <= held, y, torch.nan))


class Reading(_Noting):
    """Commits no error, and notes whether anything is added up; whether every factor and term has few
    enough bits for the narrowest operand: then only an accumulator can lose some; how many bits hold
    every sum in any order, and how large sums are."""

    def __init__(self) -> None:
        super().__init__()
        self.holds = True
        self.reads = 0
        #: Whether terms are added up, if only two elements to each other.
        self.adds = False
        #: Of the largest sum of magnitudes, down to the last bit that any of its terms has.
        self.bits = 0
        #: The largest sum of magnitudes, or value that a sum or a product is made of.
        self.largest = 0.0
        self._unit = 0.0

    def read(self, *operands: torch.Tensor) -> None:
        self.reads += 1
        self.holds = self.holds and all(bool((x == x.bfloat16()).all()) for x in operands)
        self.largest = max(self.largest, *map(_largest, operands))
        self._unit = unit_of(*operands)

    def averages(self, n: int) -> None:
        self._unit /= n

    def applied(self, name: str, *operands: Any) -> torch.Tensor | None:
        terms = [x for x in operands if isinstance(x, torch.Tensor) and x.is_floating_point()]
        self.adds = self.adds or (name in _ADDITIONS and len(terms) > 1)
        return None

    def summed(
        self,
        y: torch.Tensor,
        magnitude: torch.Tensor,
        n: int,
        squares: torch.Tensor | None = None,
    ) -> torch.Tensor:
        self.adds = True
        largest = _largest(magnitude)
        self.largest = max(self.largest, largest)
        if self._unit and largest:
            self.bits = max(self.bits, ceil(log2(largest / self._unit)))
        return y


def _largest(x: torch.Tensor) -> float:
    """Of the finite elements, in size."""
    if x.numel() and isfinite(largest := float(x.abs().max())):
        return largest
    finite = x[x.isfinite()].abs()
    return float(finite.max()) if finite.numel() else 0.0


def unit_of(*operands: torch.Tensor) -> float:
    """A power of two that all products of elements of the operands (of one: its elements) are multiples
    of: the product of their lowest bits."""
    unit = 1.0
    for x in operands:
        # In parts that stay in a processor's cache.
        found = [_lowest(part) for part in torch.split(x.reshape(-1), _PART)]
        unit *= min((bit for bit in found if bit), default=1.0)
    return unit


def _lowest(x: torch.Tensor) -> float:
    """The smallest of the lowest bits of the elements; 0 where none has one."""
    mantissa, exponent = torch.frexp(x[x.isfinite() & (x != 0)].double())
    whole = torch.ldexp(mantissa, torch.tensor(53)).long()
    lowest = torch.ldexp((whole & -whole).double(), exponent - 53)
    return float(lowest.min()) if lowest.numel() else 0.0


def _is_power(divisor: Any) -> torch.Tensor:
    mantissa, _ = torch.frexp(torch.as_tensor(divisor, dtype=torch.float64).abs())
    return mantissa == 0.5


def are_integers(x: torch.Tensor) -> bool:
    """Whether all elements are integers that float32 holds with all smaller ones."""
    return bool(((x == x.round()) & (x.abs() < _LIMIT)).all())


def in_any_order(met: set[str]) -> bool:
    """Whether the operations met leave an implementation no choice but the order."""
    return met <= EXACT | _ARITHMETIC


def traceable(met: set[str]) -> bool:
    """Whether `Traced` follows every operation met: they carry a NaN on, or move values."""
    return met <= _CARRYING | _ARITHMETIC
