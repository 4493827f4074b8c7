"""The distributions: arrays of values from a stream of random words."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod

import numpy as np
import numpy.typing as npt

from adjudge.inputs.philox import Stream, exact_log

Floats = npt.NDArray[np.float64]
Shape = tuple[int, ...]

#: Values of the lattice: integers whose products and whose sums of up to 4096 terms stay below
#: 2**24 only for the small ones, so that float32 is exact in any order; the odd 13-bit values need
#: more significant bits than tf32 (11), bfloat16 (8) or float16 (11) hold.
_LATTICE = np.array([0, 1, -1, 2, -2, 4097, -4097, 3], dtype=np.float64)


def floats(stream: Stream, shape: Shape, kind: str, distribution: str) -> Floats:
    """float64 values; `kind` ("uniform", "normal") is what the author drew."""
    count = prod(shape)
    if distribution in ("declared", "zipf"):
        drawn = stream.uniform(count) if kind == "uniform" else stream.normal(count)
        return drawn.reshape(shape)
    return _SHAPES[distribution](stream, count, shape).reshape(shape)


def integers(
    stream: Stream, low: int, high: int, shape: Shape, distribution: str
) -> npt.NDArray[np.int64]:
    """int64 values in [low, high), never outside the author's range."""
    count = prod(shape)
    if distribution in ("zeros", "constant"):
        return np.full(shape, low, dtype=np.int64)
    if distribution == "zipf":
        return zipf(stream, low, high, count).reshape(shape)
    drawn = stream.integers(low, high, count)
    if distribution == "sorted":
        drawn = np.sort(drawn)
    return drawn.reshape(shape)


def bernoulli(stream: Stream, shape: Sequence[int], p: float) -> Floats:
    return (stream.uniform(prod(shape)) < p).astype(np.float64).reshape(tuple(shape))


def zipf(stream: Stream, low: int, high: int, count: int) -> npt.NDArray[np.int64]:
    """Ranks 1, 2, 3, ... with weight 1/rank (an exact table up to 2**16 ranks), shuffled over the
    range, so that a few indices take most of the draws and many take none."""
    ranks = min(high - low, 1 << 16)
    weights = (1 << 30) // np.arange(1, ranks + 1, dtype=np.int64)
    total = np.cumsum(weights)
    picked = np.searchsorted(total, stream.integers(0, int(total[-1]), count), side="right")
    places = stream.permutation(ranks)
    spread = (high - low) // ranks
    return np.asarray(places[picked] * spread + low, dtype=np.int64)


def _scaled(scale: float, offset: float = 0.0) -> Callable[[Stream, int, Shape], Floats]:
    return lambda stream, count, shape: stream.normal(count) * scale + offset


def _spikes(stream: Stream, count: int, shape: Shape) -> Floats:
    """One value of 8 in each last-axis row, zero elsewhere."""
    width = shape[-1] if shape and shape[-1] else 1
    rows = count // width
    out = np.zeros(count)
    if rows:
        out[np.arange(rows) * width + stream.integers(0, width, rows)] = 8.0
    return out


def _sparse(stream: Stream, count: int, shape: Shape) -> Floats:
    """Nine of ten values zero."""
    return np.where(stream.uniform(count) < 0.9, 0.0, stream.normal(count))


def _heavy(stream: Stream, count: int, shape: Shape) -> Floats:
    """Student's t with two degrees of freedom: normal over the root of an exponential."""
    rate = -exact_log((stream.words(count).astype(np.float64) + 0.5) * 2.0**-32)
    return np.clip(stream.normal(count) / np.sqrt(rate + 1e-6), -1e4, 1e4)  # type: ignore[no-any-return]


def _sorted(stream: Stream, count: int, shape: Shape) -> Floats:
    """Ascending along the last axis."""
    width = shape[-1] if shape and shape[-1] else 1
    return np.sort(stream.normal(count).reshape(-1, width), axis=1).reshape(-1)


def _alternating(stream: Stream, count: int, shape: Shape) -> Floats:
    """1, eps, -1, -eps repeated: what is left after the large terms cancel is the small ones."""
    pattern = np.array([1.0, 2.0**-12, -1.0, -(2.0**-13)])
    return np.tile(pattern, (count + 3) // 4)[:count]


def _choice(table: Floats) -> Callable[[Stream, int, Shape], Floats]:
    return lambda stream, count, shape: table[stream.integers(0, len(table), count)]


_SHAPES: dict[str, Callable[[Stream, int, Shape], Floats]] = {
    "normal": _scaled(1.0),
    "normal-3": _scaled(3.0),
    "normal-0.01": _scaled(0.01),
    "normal-1000": _scaled(1000.0),
    "negated": lambda stream, count, shape: -np.abs(stream.normal(count)),
    "positive": lambda stream, count, shape: np.abs(stream.normal(count)),
    "zeros": lambda stream, count, shape: np.zeros(count),
    "constant": lambda stream, count, shape: np.full(count, 0.1),
    "one-hot": _spikes,
    "sparse": _sparse,
    "heavy-tailed": _heavy,
    "sorted": _sorted,
    "alternating": _alternating,
    "ties": _choice(np.arange(-2.0, 3.0)),  # type: ignore[arg-type]
    "offset": _scaled(1.0, 100.0),
    "lattice": _choice(_LATTICE),
}
