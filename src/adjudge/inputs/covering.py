"""Covering arrays: few rows in which every pair of levels of every two factors appears."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import combinations, product
from typing import Any

Row = dict[str, Any]
_Tuple = frozenset[tuple[str, int]]


def cover(factors: Mapping[str, Sequence[Any]], *, strength: int = 2, seed: int = 0) -> list[Row]:
    """Rows that together hold every combination of levels of every `strength` factors.

    Greedy (as AETG: Cohen, Dalal, Fredman, Patton 1997): each row takes one uncovered combination
    and gives every other factor the level that covers most of what is left. Deterministic; `seed`
    rotates the order of ties.

    Raises:
        ValueError: a factor has no level.
    """
    names = list(factors)
    for name in names:
        if not factors[name]:
            raise ValueError(f"factor {name!r} has no level")
    strength = min(strength, len(names))
    left = _all_tuples(names, factors, strength)
    rows: list[Row] = []
    while left:
        first = min(left, key=lambda item: sorted(item))
        chosen = dict(first)
        for turn in range(len(names)):
            name = names[(turn + seed) % len(names)]
            if name not in chosen:
                chosen[name] = _best(name, len(factors[name]), chosen, left)
        row = frozenset(chosen.items())
        left -= {item for item in left if item <= row}
        rows.append({name: factors[name][chosen[name]] for name in names})
    return rows


def _all_tuples(
    names: list[str], factors: Mapping[str, Sequence[Any]], strength: int
) -> set[_Tuple]:
    found = set()
    for group in combinations(names, strength):
        for levels in product(*(range(len(factors[name])) for name in group)):
            found.add(frozenset(zip(group, levels, strict=True)))
    return found


def _best(name: str, levels: int, chosen: dict[str, int], left: set[_Tuple]) -> int:
    """The level of `name` that completes most uncovered combinations, or starts most of them."""
    held = frozenset(chosen.items())
    scores = []
    for level in range(levels):
        pair = (name, level)
        touching = [item for item in left if pair in item]
        complete = sum(item - {pair} <= held for item in touching)
        scores.append((complete, len(touching), -level))
    return -max(scores)[2]
