"""The distributions: arrays of values from a stream of random words."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod

import numpy as np
import numpy.typing as npt

from adjudge.inputs.philox import Stream, exact_log

Floats = npt.NDArray[np.float64]
Shape = tuple[int, ...]

#: Integers of 13 significant bits, more than tf32 and float16 (11) or bfloat16 (8) hold; and small ones.
#: Products of the two, and sums of thousands of those, are exact in float32 in any order.
_WIDE = np.array([4097, -4097, 4099, -5001, 6113, -7001], dtype=np.float64)
_SMALL = np.array([0, 1, -1, 2, -2, 0], dtype=np.float64)
#: Positive values of 13 bits between 1 and 2, and few small ones: products do not cancel, so that what a
#: narrow operand or accumulator drops adds up instead.
_WIDE_POSITIVE = 1.0 + np.array([1, 3, 5, 9, 17, 33], dtype=np.float64) * 2.0**-12
#: Odd integers of eight bits; and of four, whose squares have eight.
_SHORT = {
    "sums": np.array([129, 151, 173, 199, 227, 255], dtype=np.float64),
    "squares": np.array([9, 11, 13, 15], dtype=np.float64),
}
_SMALL_POSITIVE = np.array([0.0, 0.5, 1.0, 0.25])
#: Values of ten bits of which eight, rounded or cut, leave too little: what is lost adds up.
_TEN = 1.0 + np.array([0, 1, 2, 4], dtype=np.float64) * 2.0**-7 + 2.0**-9
#: The large part and the little one, by the bits that their sum needs. A sum of 11 bits has steps of 4
#: at 4096, of 8 bits steps of 4 at 512: under half a step is lost. All of the middle one, in any order
#: of its terms, takes no more than 11 bits; of the first, no more than 8.
_PARTS = {4: (8.0, 1.0), 9: (512.0, 1.0), 12: (4096.0, 1.5)}
#: The one large value, the small ones, and how many zeros stand at the end, so that the sum of the
#: squares of a multiple of 8 of them is half a step beyond a sum that 8 bits, or 11, hold.
_STEPS = {
    "steps-9": (64.0, 2.0, 3),
    "steps-12": (128.0, 2.0, 1),
    "alone": (64.0, 0.0, 0),
}
#: What swamps; the small values, whose squares are half a step of 8 bits beyond 1024, or most of one of
#: 11, and how many of them a line has at most: so many that a sum of 11 bits holds the former exactly.
_SWAMPING = 32.0
_SWAMPED = {"swamped-9": (2.0, 1000), "swamped-12": (0.6875, 1 << 16)}
#: How far apart they are, line by line: each the only one in a block of that size, or a block.
_APART = (256, 64, 1)
#: Scores below that of weight 1, for weights that are most of half a step of 11 bits beyond 1, or of 8,
#: or nothing; and how many there are at most. All are rounded alike: with 511 of the first, a quarter in
#: all, honest scores in half precision move the answer by two units; with 32 of the second, an eighth in
#: all, a sum of 11 bits by four.
_DILUTED = {12: (7.65625, 511), 9: (5.5625, 32), 4: (128.0, 511)}
_NO_WEIGHT = 128.0
#: The axes along which values are summed, from the last, and the place on the others of what is summed.
_AXES, _PLACE, _LEAST = 3, 2, 6


def floats(stream: Stream, shape: Shape, kind: str, distribution: str, number: int = 0) -> Floats:
    """float64 values; `kind` ("uniform", "normal") is what the author drew, `number` how many float
    draws came before."""
    count = prod(shape)
    kind_of_sum, _, which = distribution.partition("-")
    if kind_of_sum in _SHORT:
        table = _SHORT[kind_of_sum] if number == int(which) else np.ones(1)
        return _choice(table)(stream, count, shape).reshape(shape)
    if kind_of_sum == "drift":
        return _drifting(stream, shape, int(which)) if number == 0 else np.ones(shape)
    if kind_of_sum == "parts":
        return _in_parts(shape, which, number)
    if kind_of_sum == "swamped":
        return _swamped(shape, *_SWAMPED[distribution]) if number == 0 else np.ones(shape)
    if kind_of_sum == "diluted":
        return _diluted(shape, which, number)
    if distribution in _STEPS:
        return _in_steps(shape, *_STEPS[distribution])
    if distribution in _BY_ROLE:
        first, tables = _BY_ROLE[distribution]
        return _choice(tables[(number + first) % 2])(stream, count, shape).reshape(shape)
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


def small_integers(stream: Stream, shape: Sequence[int]) -> Floats:
    """Values whose products with the lattice's, and sums of those, float32 holds exactly."""
    return _choice(_SMALL)(stream, prod(shape), tuple(shape)).reshape(tuple(shape))


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


def _drifting(stream: Stream, shape: Shape, bits: int) -> Floats:
    """1 + d, d such that a sum of the last axis kept in `bits` bits drops d of every term, and twice d
    of every square, once it has passed half its length: under a quarter of the sum's last unit, which
    is 2**(ceil(log2 n) - bits), so that twice that is still rounded down."""
    length = shape[-1] if shape else 1
    unit = float(2.0 ** (max(length - 1, 0).bit_length() - bits))
    step = 2.0 ** (1 - bits)
    wanted = min(0.23 * unit, 0.5) / step
    steps = np.floor(wanted * (0.95 + 0.1 * stream.uniform(prod(shape))))
    drawn: Floats = (1.0 + np.maximum(steps, 1.0) * step).reshape(shape)
    return drawn


def _in_parts(shape: Shape, which: str, number: int) -> Floats:
    """Zeros but for one line along each of the last axes: whatever axis is summed over, one line of it
    holds large, little, zeros, little, -large. Lines cross where all of them are zero."""
    bits, draw, *flat = which.split("-")
    if number != int(draw):
        return np.zeros(shape) if flat else np.ones(shape)
    large, little = _PARTS[int(bits)]
    drawn = np.zeros(shape)
    for axis in range(max(0, len(shape) - _AXES), len(shape)):
        if shape[axis] < _LEAST:
            continue
        others = range(len(shape) - _AXES, len(shape))
        at: list[int | slice] = [
            min(_PLACE, n - 1) if i in others and i != axis else slice(None)
            for i, n in enumerate(shape)
        ]
        line = np.zeros(shape[axis])
        line[[0, 1, -2, -1]] = large, little, little, -large
        drawn[tuple(at)] += line  # [..., n]: the axes before are those of the batch
    return drawn


def _in_steps(shape: Shape, large: float, small: float, zeros: int) -> Floats:
    """Every line of the last axis the same."""
    drawn = np.full(shape, small)
    if shape and shape[-1] >= _LEAST:
        drawn[..., 0] = large
        drawn[..., shape[-1] - zeros :] = 0.0
    return drawn


def _few(length: int, apart: int, most: int, turned: bool) -> npt.NDArray[np.int64]:
    """Places of the small ones of a line: behind the large one, which is first or (turned) last."""
    places = np.arange(max(apart - 1, 1), length, apart)[:most]
    return length - 1 - places if turned else places


def _patterns(apart: tuple[int, ...]) -> list[tuple[int, bool]]:
    """A kernel may go forwards or backwards."""
    return [(gap, turned) for gap in apart for turned in (False, True)]


def _swamped(shape: Shape, small: float, most: int) -> Floats:
    """Lines of the longest axis, each with the small values as far apart as its turn says."""
    axis = int(np.argmax(shape)) if shape else 0
    length = shape[axis] if shape else 1
    lines = np.zeros((prod(shape) // max(length, 1), length))
    patterns = _patterns(_APART)
    for number, (apart, turned) in enumerate(patterns):
        line = lines[number :: len(patterns)]
        line[:, _few(length, apart, most, turned)] = small
        line[:, -1 if turned else 0] = _SWAMPING
    return _along(lines, shape, axis)


def _along(lines: Floats, shape: Shape, axis: int) -> Floats:
    """Lines [.., n] as an array of that shape with them along the axis."""
    if not shape:
        return lines.reshape(shape)
    others = shape[:axis] + shape[axis + 1 :]
    return np.ascontiguousarray(np.moveaxis(lines.reshape(*others, shape[axis]), -1, axis))


def _diluted(shape: Shape, which: str, number: int) -> Floats:
    """Scores, or queries, keys and values [..., rows, features] for them: a query picks one feature of
    the keys, which holds one pattern of scores; a value is 1 at the key of weight 1, and 0 elsewhere.

    Scores are taken to be divided by the root of the number of features.
    """
    bits, draw = map(int, which.split("-"))
    if number > 2 * draw or len(shape) < 1 + draw:
        return np.ones(shape)
    features = shape[-1]
    patterns = _patterns((64, 128, 1))
    if draw == 0:
        axis = int(np.argmax(shape))
        table = _scores(patterns, shape[axis], bits, 1.0)
        picked = np.arange(prod(shape) // max(shape[axis], 1)) % len(patterns)
        return _along(table[picked], shape, axis)
    patterns = patterns[:features]
    if number == 0:
        drawn = np.zeros(shape)
        rows = drawn.reshape(-1, features)
        rows[np.arange(len(rows)), np.arange(len(rows)) % len(patterns)] = 1.0
        return drawn
    axis = int(np.argmax(shape[:-1]))
    keys = shape[axis]
    held = np.zeros((keys, features))
    if number == 1:
        held[:, : len(patterns)] = _scores(patterns, keys, bits, features**0.5).T
    else:
        held[0, ::2] = 1.0
        held[-1, 1::2] = 1.0
    drawn = np.zeros(shape)
    np.moveaxis(drawn, axis, -2)[...] = held  # [..., keys, features]
    return drawn


def _scores(patterns: list[tuple[int, bool]], length: int, bits: int, scale: float) -> Floats:
    """One line a pattern, times `scale`."""
    below, most = _DILUTED[bits]
    # Eight bits, so that half precision holds them; no weight is larger for that.
    step = 2.0 ** (np.ceil(np.log2(below * scale)) - 8)
    lines = np.full((len(patterns), length), -_NO_WEIGHT * scale)
    for line, (apart, turned) in zip(lines, patterns, strict=True):
        line[_few(length, apart, most, turned)] = -np.ceil(below * scale / step) * step
        line[-1 if turned else 0] = 0.0
    return lines


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
    # Subnormal in float32 and in float16.
    "subnormal": _scaled(2.0**-132),
    "subnormal-16": _scaled(2.0**-18),
    "offset-1000": _scaled(1.0, 1000.0),
}

#: Distributions in which draws take turns: the factors of a product must not both be wide.
_BY_ROLE: dict[str, tuple[int, tuple[Floats, Floats]]] = {
    "lattice": (0, (_WIDE, _SMALL)),
    "lattice-turned": (1, (_WIDE, _SMALL)),
    "gap": (0, (_WIDE_POSITIVE, _SMALL_POSITIVE)),
    "gap-turned": (1, (_WIDE_POSITIVE, _SMALL_POSITIVE)),
    "tens": (0, (_TEN, _SMALL_POSITIVE)),
    "tens-turned": (1, (_TEN, _SMALL_POSITIVE)),
}
