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
    "alternating",
    "ties",
    "offset",
    "lattice",
    "zipf",
)

#: Distributions on which rounding errors line up, so that the generic square-root law of the envelope
#: does not hold and a conviction needs the worst-case bound.
STRUCTURED: frozenset[str] = frozenset(
    {"zeros", "constant", "one-hot", "sorted", "alternating", "ties", "lattice"}
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

#: How tensors lie in memory. Every layout but "expanded" and "overlapping" keeps the values.
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

#: Byte patterns for memory that holds nothing yet. Two poisons, because NaN * 0 shows what
#: 1e30 * 0 hides, and a maximum hides NaN.
FILLS: tuple[str, ...] = ("zero", "nan", "finite")

#: What may have been called before the observed call, on the same instance.
HISTORIES: tuple[str, ...] = (
    "same",  # the same content in the same tensors
    "other",  # other content in other tensors
    "in-place",  # other content in the same tensors, which then receive the observed content
    "parameter",  # the same content under other weights, which then are set to the observed ones
)
