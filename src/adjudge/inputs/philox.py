"""Philox4x32-10: a counter-based generator whose bits are the same everywhere.

Salmon, Moraes, Dror, Shaw, "Parallel random numbers: as easy as 1, 2, 3" (SC'11). The constants are
the paper's; the test compares with its published known answers.

Everything built on the bits uses only integer arithmetic and the IEEE operations + - * / sqrt in
float64, each correctly rounded on every machine. No library function whose last bit may differ
between versions (log, cos) takes part.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

Words = npt.NDArray[np.uint32]
Floats = npt.NDArray[np.float64]

_M0, _M1 = np.uint64(0xD2511F53), np.uint64(0xCD9E8D57)
_W0, _W1 = 0x9E3779B9, 0xBB67AE85
_LOW = np.uint64(0xFFFFFFFF)
_SHIFT = np.uint64(32)
#: Blocks, or values, worked on at a time: some ten arrays of that length stay in a processor's cache.
_CHUNK = 1 << 13


def philox(counter: tuple[Any, Any, Any, Any], key: tuple[int, int]) -> tuple[Words, ...]:
    """Ten rounds on four counter words (arrays broadcast) and two key words; four output words."""
    c0, c1, c2, c3 = (np.asarray(word, dtype=np.uint64) for word in counter)
    k0, k1 = key
    for _ in range(10):
        left, right = _M0 * c0, _M1 * c2
        c0, c1, c2, c3 = (
            (right >> _SHIFT) ^ c1 ^ np.uint64(k0),
            right & _LOW,
            (left >> _SHIFT) ^ c3 ^ np.uint64(k1),
            left & _LOW,
        )
        k0, k1 = (k0 + _W0) & 0xFFFFFFFF, (k1 + _W1) & 0xFFFFFFFF
    return tuple(word.astype(np.uint32) for word in (c0, c1, c2, c3))


class Stream:
    """One stream of random words, keyed by (seed, number). Reading advances it."""

    def __init__(self, seed: int, number: int) -> None:
        self._key = (seed & 0xFFFFFFFF, (seed >> 32) & 0xFFFFFFFF)
        self._number = number & 0xFFFFFFFF
        self._block = 0

    def words(self, count: int) -> Words:
        """The next `count` words; every call starts at a fresh block of four."""
        blocks = (count + 3) // 4
        found = np.empty((blocks, 4), dtype=np.uint32)
        for start in range(0, blocks, _CHUNK):
            part = found[start : start + _CHUNK]
            low = np.arange(self._block + start, self._block + start + len(part), dtype=np.uint64)
            words = philox((low & _LOW, low >> _SHIFT, self._number, 0), self._key)
            np.stack(words, axis=1, out=part)
        self._block += blocks
        return found.reshape(-1)[:count]

    def uniform(self, count: int) -> Floats:
        """Floats in [0, 1) on a grid of 2**-24, exact in float32."""
        return (self.words(count) >> np.uint32(8)).astype(np.float64) * 2.0**-24

    def normal(self, count: int) -> Floats:
        """Standard normal values, by the inverse of the distribution function.

        The rational approximation (Acklam 2003, relative error below 1.2e-9) needs no more than
        + - * / sqrt and one logarithm in the tails, which is replaced by an exact-arithmetic one.
        Values are rounded to float32's grid by whoever stores them.
        """
        words = self.words(count)
        found = np.empty(count)
        for start in range(0, count, _CHUNK):
            part = slice(start, start + _CHUNK)
            found[part] = inverse_normal((words[part].astype(np.float64) + 0.5) * 2.0**-32)
        return found

    def integers(self, low: int, high: int, count: int) -> npt.NDArray[np.int64]:
        """Integers in [low, high), each equally likely to within 2**-32 of its share.

        Fixed-point multiplication (Lemire 2019) without rejection, so that the n-th value does not
        depend on the ones before it.
        """
        span = high - low
        if span <= 0:
            raise ValueError(f"empty range [{low}, {high})")
        words = self.words(count).astype(np.uint64)
        if span <= 1 << 32:
            return ((words * np.uint64(span)) >> _SHIFT).astype(np.int64) + low
        wide = (words << _SHIFT) | self.words(count).astype(np.uint64)
        return (wide % np.uint64(span)).astype(np.int64) + low

    def permutation(self, count: int) -> npt.NDArray[np.int64]:
        return np.argsort(self.words(count), kind="stable").astype(np.int64)


_A = (-3.969683028665376e01, 2.209460984245205e02, -2.759285104469687e02,
      1.383577518672690e02, -3.066479806614716e01, 2.506628277459239e00)  # fmt: skip
_B = (-5.447609879822406e01, 1.615858368580409e02, -1.556989798598866e02,
      6.680131188771972e01, -1.328068155288572e01)  # fmt: skip
_C = (-7.784894002430293e-03, -3.223964580411365e-01, -2.400758277161838e00,
      -2.549732539343734e00, 4.374664141464968e00, 2.938163982698783e00)  # fmt: skip
_D = (7.784695709041462e-03, 3.224671290700398e-01, 2.445134137142996e00,
      3.754408661907416e00)  # fmt: skip
#: Where the central and the tail formula meet, from the same source.
_TAIL = 0.02425


def _poly(coefficients: tuple[float, ...], x: Floats) -> Floats:
    total = np.full_like(x, coefficients[0])
    for c in coefficients[1:]:
        total = total * x + c
    return total


def inverse_normal(p: Floats) -> Floats:
    """Quantile of the standard normal distribution for p in (0, 1), float64."""
    q = p - 0.5
    r = q * q
    centre = _poly(_A, r) * q / (_poly(_B, r) * r + 1.0)
    edge = np.minimum(p, 1.0 - p)
    far = edge < _TAIL
    # Logarithms take longer than all else here, and one value in twenty needs one.
    tail = np.sqrt(-2.0 * exact_log(edge[far]))
    outer = _poly(_C, tail) / (_poly(_D, tail) * tail + 1.0)
    centre[far] = np.where(q[far] < 0, outer, -outer)
    return centre


def exact_log(x: Floats) -> Floats:
    """Natural logarithm of positive x by range reduction and the series of atanh.

    log(m 2**e) = e log 2 + 2 atanh((m-1)/(m+1)), with m in [0.707, 1.414) so that 12 odd terms leave
    less than 1e-19. Only IEEE operations, so the bits are the same everywhere.
    """
    mantissa, exponent = np.frexp(x)
    low = mantissa < 0.7071067811865476
    mantissa = np.where(low, mantissa * 2.0, mantissa)
    exponent = exponent - low
    t = (mantissa - 1.0) / (mantissa + 1.0)
    square = t * t
    series = np.zeros_like(t)
    for k in range(23, 0, -2):
        series = series * square + 1.0 / k
    return exponent * 0.6931471805599453 + 2.0 * t * series
