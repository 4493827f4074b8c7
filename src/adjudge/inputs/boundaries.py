"""Sizes at which kernels break: small ones, primes, powers of two and blocks with their neighbours."""

from __future__ import annotations

from collections.abc import Sequence

from adjudge.task import Symbol

#: Tried before anything else: a single element, tails of every small vector, an empty dimension.
_SMALL = (1, 2, 3, 0)
_PRIMES = (7, 13, 31, 61, 127, 257, 521, 1031)
_POWERS = (16, 32, 64, 128, 256, 512, 1024, 2048)


def boundary_sizes(symbol: Symbol, blocks: Sequence[int], cap: int) -> tuple[int, ...]:
    """Sizes for one symbol, most telling first, none above `cap`.

    Small sizes, then k * BLOCK - 1 and + 1 for the kernel's own block constants (k = 1, 2), then the
    native size's neighbours, primes, and powers of two with their neighbours.
    """
    sizes: list[int] = [*_SMALL]
    for block in blocks:
        if block >= 4:
            sizes += [block + 1, block - 1, block, 2 * block + 1]
    sizes += [symbol.native + 1, symbol.native - 1]
    sizes += _PRIMES[:3]
    for power in _POWERS:
        sizes += [power + 1, power - 1]
    sizes += _PRIMES[3:]
    return tuple(dict.fromkeys(n for n in sizes if 0 <= n <= cap))
