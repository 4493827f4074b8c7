"""Inputs on which every honest kernel gives the same bits, whatever the order of its sums.

Where all values are integers and all sums of absolute values stay below 2**24, float32 holds every
partial sum of every order, and every product, without rounding. An accumulator of float16 or bfloat16
does not, nor do operands cut to tf32.
"""

from __future__ import annotations

import torch

from adjudge.oracle.regimes import Regime
from adjudge.oracle.rules import EXACT, Noise, Silence

#: Integers of smaller size have a float32 each, sums of them too.
_LIMIT = 2.0**24
#: Arithmetic whose result on integers every implementation gives exactly. Division, means and
#: functions are not in it (a reciprocal may stand in for them), nor are convolutions (a transform may).
_ARITHMETIC = frozenset(
    "add sub rsub mul square mm bmm mv dot addmm baddbmm sum cumsum scatter_add index_add".split()
)


class Exactness(Noise):
    """Commits no error, and notes whether any honest kernel could."""

    def __init__(self) -> None:
        super().__init__(Regime("exact", 0.0, 0.0, 0.0), 0, worst=True)
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

    def contracted(
        self, y: torch.Tensor, magnitude: torch.Tensor, squares: torch.Tensor | None, n: int
    ) -> torch.Tensor:
        return self.summed(y, magnitude, n)


class Reading(Silence):
    """Commits no error, and notes whether every factor and term has few enough bits for the narrowest
    operand: then only an accumulator can lose some."""

    def __init__(self) -> None:
        super().__init__()
        self.holds = True
        self.reads = 0

    def read(self, *operands: torch.Tensor) -> None:
        self.reads += 1
        self.holds = self.holds and all(bool((x == x.bfloat16()).all()) for x in operands)


def are_integers(x: torch.Tensor) -> bool:
    """Whether all elements are integers that float32 holds with all smaller ones."""
    return bool(((x == x.round()) & (x.abs() < _LIMIT)).all())


def in_any_order(met: set[str]) -> bool:
    """Whether the operations met leave an implementation no choice but the order."""
    return met <= EXACT | _ARITHMETIC
