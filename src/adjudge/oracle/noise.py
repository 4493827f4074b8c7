"""Fresh random errors, at the price of one multiplication an element.

Drawing a random number an element an op would cost several times the op itself. A pool is drawn
once; every use takes a slice of it at a random offset, so that two uses share an element of noise
at the same place with a probability of one in the pool's size.
"""

from __future__ import annotations

import random
from functools import lru_cache

import torch

#: Elements in the pool; a prime, so that long outputs do not repeat it in step with their rows.
POOL = 1_048_573


@lru_cache(maxsize=2)
def _pool(signs: bool) -> torch.Tensor:
    generator = torch.Generator().manual_seed(20_260_801)
    uniform = torch.rand(POOL, generator=generator, dtype=torch.float64) * 2 - 1
    return uniform.sign() if signs else uniform


@lru_cache(maxsize=12)
def _factors(signs: bool, coefficient: float) -> torch.Tensor:
    return _pool(signs) * coefficient + 1.0


class Noise:
    """One sample's stream of errors.

    Args:
        seed: names the sample.
        kind: "uniform" on [-1, 1], "signs" (±1 an element) or "coherent" (one sign an op).
    """

    def __init__(self, seed: int, kind: str = "uniform") -> None:
        self.random = random.Random(seed)
        self.kind = kind
        self.draws = 0

    def _slice(self, pool: torch.Tensor, n: int) -> torch.Tensor:
        start = self.random.randrange(POOL)
        if start + n <= POOL:
            return pool[start : start + n]
        pieces, left = [pool[start:]], n - (POOL - start)
        while left > 0:
            pieces.append(pool[: min(left, POOL)])
            left -= POOL
        return torch.cat(pieces)

    def relative(self, y: torch.Tensor, coefficient: float) -> None:
        """y ← y · (1 + ε · coefficient), in place."""
        self.draws += 1
        if self.kind == "coherent":
            y.mul_(1.0 + coefficient * self.random.choice((-1, 1)))
        else:
            factors = _factors(self.kind == "signs", coefficient)
            y.mul_(self._slice(factors, y.numel()).view(y.shape))

    def additive(self, y: torch.Tensor, scale: torch.Tensor, coefficient: float) -> None:
        """y ← y + ε · coefficient · scale, in place; `scale` broadcasts against y and is finite."""
        self.draws += 1
        if self.kind == "coherent":
            y.add_(scale, alpha=coefficient * self.random.choice((-1, 1)))
        else:
            epsilon = self._slice(_pool(self.kind == "signs"), y.numel()).view(y.shape)
            y.addcmul_(epsilon.to(y.dtype), scale.to(y.dtype), value=coefficient)
