"""Probe: one run of the candidate to be made.

A probe is a point in the space of factors (shape, distribution, special value, layout, memory
fill, ...). It has an equality, so that gates that ask for the same probe share one run, and it is
small enough to paste: `inputs.codec` turns it into one line and back.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

Sizes = tuple[tuple[str, int], ...]


def sizes_of(sizes: Mapping[str, int]) -> Sizes:
    """The canonical form of an assignment of dimension symbols."""
    return tuple(sorted(sizes.items()))


@dataclass(frozen=True, slots=True, kw_only=True)
class Probe:
    """Every field but `sizes` and `seed` names the level of one factor; the defaults are the
    ordinary run: declared values, contiguous, seeded weights, zeroed fresh memory, first call."""

    #: Dimension symbols and their sizes, sorted by name.
    sizes: Sizes = ()
    #: Key of the counter-based generator for this probe's values.
    seed: int = 0
    #: Shape of the values; a name of `inputs.levels.DISTRIBUTIONS`.
    distribution: str = "declared"
    #: Special value placed after drawing; a name of `inputs.levels.SPECIALS`.
    special: str = "none"
    #: How the tensors lie in memory; a name of `inputs.levels.LAYOUTS`.
    layout: str = "contiguous"
    #: "native", or a dtype that replaces the float dtype of inputs and parameters.
    dtype: str = "native"
    #: "seeded" as the harness builds them, "redrawn" (identity defaults hide omissions), "lattice"
    #: (small integers, on which sums are exact), or "ones".
    weights: str = "seeded"
    #: What memory that the candidate allocates holds before it is written: a name of FILLS.
    fill: str = "zero"
    #: What lies around inputs and allocations: a name of FILLS.
    guard: str = "zero"
    #: Order of program instances: "serial", "reversed", "random:K" or "simultaneous".
    schedule: str = "serial"
    #: Which autotune configuration is forced; -1 leaves the kernel's first.
    config: int = -1
    #: Calls made on the same instance before the observed one; a tuple of names of HISTORIES.
    history: tuple[str, ...] = ()
    #: Worker processes are numbered; another number is another fresh process.
    process: int = 0
    #: Tells apart two runs that are otherwise the same.
    repeat: int = 0
    #: "none", or what the backward pass is given, and its gradients are what is observed: a name of
    #: `inputs.levels.COTANGENTS`.
    cotangent: str = "none"
    #: "whole", or the part of the batch whose rows alone are given: a name of `inputs.levels.BATCHES`.
    batch: str = "whole"
    #: 0, or the number of dimensions that the task's first input is given with in place of its own: its
    #: leading ones, the batch, are split or merged.
    rank: int = 0

    def size(self, symbol: str) -> int:
        return dict(self.sizes)[symbol]

    def at(self, sizes: Mapping[str, int]) -> Probe:
        return replace(self, sizes=sizes_of(sizes))

    @property
    def factors(self) -> tuple[str, ...]:
        """Names of the factors, `sizes` aside, that are not at their default level."""
        return tuple(name for name in FACTORS if getattr(self, name) != getattr(ORDINARY, name))

    def without(self, factors: Iterable[str]) -> Probe:
        """The same probe with the named factors back at their default level."""
        return replace(self, **{name: getattr(ORDINARY, name) for name in factors})


ORDINARY = Probe()

#: Factors a covering array crosses and a shrink step resets. `sizes` is treated apart, because its
#: default depends on the task.
FACTORS: tuple[str, ...] = (
    "distribution",
    "special",
    "layout",
    "dtype",
    "weights",
    "fill",
    "guard",
    "schedule",
    "config",
    "history",
    "process",
    "repeat",
    "cotangent",
    "batch",
    "rank",
)
