"""Names of the levels of each factor. The probes, the covering array and the codec speak these.

Nothing here imports torch or numpy.
"""

from __future__ import annotations

#: How random draws of the task's inputs are shaped. "declared" is what the author wrote. The others
#: replace the *draws* inside the author's own input function, so that whatever structure is made from
#: them (a softmax, a triangular mask, labels in a range) still holds.
DISTRIBUTIONS: tuple[str, ...] = (
    "declared",
    "normal",
    "normal-3",
    "normal-0.01",
    "normal-1000",
    "negated",
    "positive",
    "zeros",
    "constant",
    "one-hot",
    "sparse",
    "heavy-tailed",
    "sorted",
    "ties",
    "zipf",
)

#: Values whose large parts cancel: a mean of 1 and of 1000 spreads, and [1, eps, -1, -eps].
CANCELLING: tuple[str, ...] = ("offset", "offset-1000", "alternating")
#: Integers on which float32 sums are exact in any order, and positive values of as many bits.
LATTICES: tuple[str, ...] = ("lattice", "lattice-turned")
GAPS: tuple[str, ...] = ("gap", "gap-turned")
#: Integers of eight bits, or of four (whose squares have eight), in one draw and ones in the others, so
#: that what is summed is short and sums are long.
SUMS: tuple[str, ...] = ("sums-0", "sums-1", "sums-2", "squares-0")
#: Values a little above one, with which a running sum of float16 (11 bits), or of bfloat16 (8), drifts:
#: it drops the same share of nearly every term.
DRIFTS: dict[str, str] = {"float16": "drift-11", "bfloat16": "drift-8"}
#: A large part that comes first and is taken away last, with a little after the one and before the
#: other: a running sum that is rounded anywhere in between to 8 bits ("parts-9-...") or to 11
#: ("parts-12-...") loses the little; one rounded to either loses nothing of "parts-4-...". The number is
#: the draw that holds it; the other draws hold ones, or ("flat") zeros.
PARTS: dict[tuple[int, int, bool], str] = {
    (bits, draw, flat): f"parts-{bits}-{draw}" + ("-flat" if flat else "")
    for bits in (4, 9, 12)
    for draw in (0, 1, 2)
    for flat in (False, True)
}
#: One large value and many small ones, for sums of squares: together half a step more than a sum
#: of 8 bits holds, and exact in 11 ("steps-9"), or more than one of 11 holds ("steps-12"). In
#: "swamped-9" and "swamped-12" each single square is no more than half a step of 8 bits, or of 11, next
#: to the large one, and stands alone in its block or is a block; 11 bits hold the sums of the former. In
#: "alone" there are no small ones.
STEPS: tuple[str, ...] = ("steps-9", "steps-12")
SWAMPED: tuple[str, ...] = ("swamped-9", "swamped-12")
ALONE = "alone"
#: Scores of which one has weight 1 and others, each in a block of its own or each a block, so little
#: that a running sum of 8 bits ("diluted-9-..."), or of 11, loses each of them; in "diluted-4-..." they
#: have none. Draw 0 holds the scores, or draws 0 and 1 their factors, and draw 2 what is weighted.
DILUTED: dict[tuple[int, int], str] = {
    (bits, draw): f"diluted-{bits}-{draw}" for bits in (4, 9, 12) for draw in (0, 1)
}
#: Positive values of ten bits, whose last one a bfloat16 lacks and a tf32 has.
TENS: tuple[str, ...] = ("tens", "tens-turned")
SUBNORMAL: tuple[str, ...] = ("subnormal", "subnormal-16")

#: Every distribution, whichever gate asks for it.
ALL_DISTRIBUTIONS: tuple[str, ...] = (
    *DISTRIBUTIONS,
    *CANCELLING,
    *LATTICES,
    *GAPS,
    *SUMS,
    *DRIFTS.values(),
    *PARTS.values(),
    *STEPS,
    *SWAMPED,
    ALONE,
    *DILUTED.values(),
    *TENS,
    *SUBNORMAL,
)

#: Distributions on which rounding errors line up, so that the generic square-root law of the envelope
#: does not hold and a conviction needs the worst-case bound.
STRUCTURED: frozenset[str] = frozenset(
    {
        *("zeros", "constant", "one-hot", "sorted", "alternating", "ties"),
        *(*LATTICES, *GAPS, *SUMS, *DRIFTS.values(), *PARTS.values(), *STEPS),
        *(*SWAMPED, ALONE, *DILUTED.values(), *TENS),
    }
)

#: Special values written into the drawn float inputs. "@" gives the place: one element ("first",
#: "last", "any") or a whole row along the last axis ("row").
SPECIALS: tuple[str, ...] = (
    "none",
    "nan@first",
    "nan@last",
    "nan@any",
    "+inf@any",
    "-inf@any",
    "+inf@last",
    "-inf@last",
    "-inf@row",
    "+inf@row",
    "nan@row",
    "huge@any",
    "huge@row",
    "-zero@any",
)

#: A float input multiplied by a power of two: "scaled:24@1" is the second one times 2**24.
SCALES: tuple[int, ...] = (24, -24)

#: Float dtypes that replace the task's own.
DTYPES: tuple[str, ...] = ("float32", "float16", "bfloat16")

#: Layouts in which elements share memory: they do not keep the values, and nothing may write to them.
TIED: tuple[str, ...] = ("expanded", "overlapping")

#: How tensors lie in memory. Every layout but the TIED ones keeps the values.
LAYOUTS: tuple[str, ...] = (
    "contiguous",
    "transposed",
    "sliced",
    "padded",
    "offset",
    "misaligned",
    "expanded",
    "overlapping",
    "side-sliced",
    "channels-last",
    "far",
)

#: What the backward pass is given for each output, and how it lies in memory. Every level but "none"
#: observes gradients in place of outputs.
COTANGENTS: tuple[str, ...] = (
    "none",
    "random",
    "one-hot",  # one element of each output alone
    "zero",
    "expanded",  # ones that share one element (stride 0), as `out.sum().backward()` gives
    "sliced",  # random, every other element of a storage twice as wide
    "transposed",  # random, the last two axes swapped in memory
    "twice",  # random, through one graph a second time: the second gradients are observed
)

#: Byte patterns for memory that holds nothing yet. Two poisons, because NaN * 0 shows what
#: 1e30 * 0 hides, and a maximum hides NaN.
FILLS: tuple[str, ...] = ("zero", "nan", "finite")

#: Which rows of a batch are given. Every level but "whole" draws the batch and keeps a part of it.
BATCHES: tuple[str, ...] = ("whole", "first", "last", "half")

#: Numbers of dimensions that activations are given with: rows alone, and rows in one or two more
#: dimensions of batch (a sequence, its heads).
RANKS: tuple[int, ...] = (2, 3, 4)

#: What may have been called before the observed call, on the same instance.
HISTORIES: tuple[str, ...] = (
    "same",  # the same content in the same tensors
    "other",  # other content in other tensors
    "in-place",  # other content in the same tensors, which then receive the observed content
    "parameter",  # the same content under other weights, which then are set to the observed ones
)
