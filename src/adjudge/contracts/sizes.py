"""Sizes of a dimension symbol as a file writes them: 128, "1..4096", "16..4096 by 16", or a list."""

from __future__ import annotations

import re
from collections.abc import Mapping

from adjudge.contracts.terms import SizeWords
from adjudge.task import SizeRange, SizeScope

#: Beyond what counts the elements of a tensor, a signed 64-bit integer of at most 19 digits.
_NO_SIZE = 2**63
_RANGE = re.compile(r"\s*(\d{1,19})\s*\.\.\s*(\d{1,19})(?:\s+by\s+(\d{1,19}))?\s*\Z")


def ranges(words: SizeWords) -> tuple[SizeRange, ...]:
    """The ranges that the words mean.

    Raises:
        ValueError: they mean none; the message says why and what to write.
    """
    if isinstance(words, list):
        if not words:
            raise ValueError("an empty list allows no size")
        return tuple(found for item in words for found in ranges(item))
    if isinstance(words, bool) or (isinstance(words, int) and not 0 <= words < _NO_SIZE):
        raise ValueError(f"{words} is no size")
    if isinstance(words, int):
        return (SizeRange(words, words),)
    match = _RANGE.match(words)
    if match is None:
        raise ValueError(
            f"{words[:80]!r} is no range of sizes: write 128, [64, 128], "
            '"1..4096" or "16..4096 by 16"'
        )
    low, high, step = int(match[1]), int(match[2]), int(match[3] or 1)
    if low > high:
        raise ValueError(f"{words!r} holds no size: {low} is greater than {high}")
    if step < 1:
        raise ValueError(f"{words!r} has a step of {step}")
    return (SizeRange(low, high, step),)


def scope(words: Mapping[str, SizeWords]) -> SizeScope:
    """Raises ValueError as `ranges` does."""
    return SizeScope(tuple(sorted((name, ranges(item)) for name, item in words.items())))


def shown(found: tuple[SizeRange, ...]) -> str:
    """The ranges as a file writes them, joined by commas."""
    return ", ".join(map(str, found))
