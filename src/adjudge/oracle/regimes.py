"""Precision regimes: what values are stored in, products formed in, sums kept in.

Unit roundoff u = 2**-p for p significant bits, rounding to nearest.
"""

from __future__ import annotations

from dataclasses import dataclass

FP32, TF32, FP16, BF16 = 2.0**-24, 2.0**-11, 2.0**-11, 2.0**-8


@dataclass(frozen=True, slots=True)
class Regime:
    name: str
    #: Unit roundoff of stored values.
    store: float
    #: Unit roundoff of accumulators.
    accumulate: float
    #: Unit roundoff of the operands of products; 0 where they are taken as stored.
    operand: float
    #: Whether the terms of plain sums are cut like the operands of products: a sum may be a product with
    #: ones.
    reads_sums: bool = False
    #: Whether operands may also be cut to their bits toward zero, as tensor cores do with float32 that
    #: they are handed unrounded: all errors then go one way.
    cuts: bool = False


_ALL = (
    Regime("fp32", FP32, FP32, 0.0),
    Regime("tf32", FP32, FP32, TF32, cuts=True),
    Regime("bf16xfp32", FP32, FP32, BF16),
    Regime("fp16xfp32", FP32, FP32, FP16),
    Regime("bf16xbf16", BF16, BF16, BF16),
    Regime("fp16xfp16", FP16, FP16, FP16),
)

#: Strictest first. A candidate's grade is the first one whose envelope holds.
REGIMES: tuple[str, ...] = tuple(regime.name for regime in _ALL)


#: The same order for a candidate of which it is known whether its accumulators are narrow, or what they
#: are fed.
NARROW_SUMS: tuple[str, ...] = ("fp16xfp16", "bf16xbf16")
NARROW_FACTORS: tuple[str, ...] = ("tf32", "fp16xfp32", "bf16xfp32")


def regime(name: str) -> Regime:
    """Raises ValueError for a name that is not in REGIMES."""
    for found in _ALL:
        if found.name == name:
            return found
    raise ValueError(f"no precision regime named {name!r}; there are {', '.join(REGIMES)}")
