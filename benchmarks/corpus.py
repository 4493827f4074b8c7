"""Reads a corpus of kernels: JSON lines, gzipped, with the fields problem, level, sha, candidate,
reference."""

from __future__ import annotations

import gzip
import hashlib
import json
import sys
from pathlib import Path
from typing import Any

Row = dict[str, Any]


def rows(path: Path) -> list[Row]:
    with gzip.open(path, "rt", encoding="utf-8") as lines:
        return [json.loads(line) for line in lines]


def tasks(path: Path, *, per_level: int = 20) -> list[Row]:
    """One row a problem: the first `per_level` problems of each level by SHA-256 of their name."""
    by_problem = {row["problem"]: row for row in rows(path)}
    levels = sorted({row["level"] for row in by_problem.values()})
    chosen = []
    for level in levels:
        names = [name for name, row in by_problem.items() if row["level"] == level]
        names.sort(key=lambda name: hashlib.sha256(name.encode()).hexdigest())
        chosen += [by_problem[name] for name in names[:per_level]]
    return chosen


def first_accepted(path: Path, count: int) -> list[Row]:
    """One accepted kernel a problem (its lowest sha), ordered by sha."""
    best: dict[str, Row] = {}
    for row in rows(path):
        held = best.get(row["problem"])
        if row["accepted"] and (held is None or row["sha"] < held["sha"]):
            best[row["problem"]] = row
    return sorted(best.values(), key=lambda row: row["sha"])[:count]


def stratified(path: Path, count: int) -> list[Row]:
    """One accepted kernel a problem (its lowest sha), so ordered that every beginning holds as much of
    each level as the whole; within a level by sha."""
    by_level: dict[int, list[Row]] = {}
    for row in first_accepted(path, sys.maxsize):
        by_level.setdefault(row["level"], []).append(row)
    placed = [
        ((place + 0.5) / len(level), row["sha"], row)
        for level in by_level.values()
        for place, row in enumerate(level)
    ]
    return [row for *_, row in sorted(placed, key=lambda item: item[:2])][:count]
