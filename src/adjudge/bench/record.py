"""What a benchmark says, and how it is kept: one JSON line each, appended, never rewritten."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from adjudge import record
from adjudge.contract import Verdict

#: Version of the stored record.
SCHEMA = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Timing:
    """One program's time for a call, in seconds of the judge's clock."""

    name: str
    seconds: float
    #: What holds the median between them in 95 of 100 cases.
    low: float
    high: float
    #: The same by the worker's own clock: CUDA events, or that of its process.
    claimed: float
    #: Seconds a call for making its inputs, and for reading its answer; seconds a span beside its calls.
    place: float
    seal: float
    beside: float
    #: Calls of a short and a long span, and rounds of both.
    calls: tuple[int, int]
    rounds: int
    #: Bytes of all inputs of a long span.
    ring: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Roofline:
    nbytes: int
    operations: int
    #: Measured here: bytes a second of a copy, operations a second of a matrix product (0: not needed).
    bandwidth: float
    rate: float
    #: Seconds that the work takes at least.
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Benchmark:
    """A candidate's speed beside its verdict."""

    name: str
    verdict: Verdict
    #: The candidate's time; None where none is given.
    candidate: Timing | None
    #: The reference as it is, and as `torch.compile` makes it; None where it did not run.
    eager: Timing | None
    compiled: Timing | None
    #: Why no speed is given.
    refused: tuple[str, ...] = ()
    #: What was wrong with answers of timed calls: violations, as the verdict's are.
    wrong: tuple[str, ...] = ()
    #: Answers that were checked, of how many timed calls, and how.
    checked: int = 0
    calls: int = 0
    unjudged: str = ""
    #: Seconds a call that could have been done outside of what was timed, at most.
    hidden: float = 0.0
    #: Inputs that no call shares with another; empty: answers could have been kept.
    varied: tuple[str, ...] = ()
    #: Bytes of the cache that is emptied before the calls.
    cache: int = 0
    roofline: Roofline | None = None
    notes: tuple[str, ...] = ()
    #: UTC, ISO 8601.
    date: str = ""
    schema: int = SCHEMA

    @property
    def convicted(self) -> bool:
        return bool(self.wrong or self.verdict.violations)

    def against(self, other: Timing | None) -> float | None:
        """How many times as fast as `other` the candidate is."""
        if self.candidate is None or other is None:
            return None
        return other.seconds / self.candidate.seconds

    @property
    def slower(self) -> bool:
        """Whether it is surely slower than the reference as it is."""
        if self.candidate is None or self.eager is None:
            return False
        return self.candidate.low > self.eager.high

    @property
    def fraction(self) -> float | None:
        """Part of the roofline that it reaches."""
        if self.candidate is None or self.roofline is None:
            return None
        return self.roofline.seconds / self.candidate.seconds


def to_mapping(benchmark: Benchmark) -> dict[str, Any]:
    """Plain JSON values; the verdict as its own record has it."""
    plain: dict[str, Any] = record.plain(asdict(replace(benchmark)))
    plain["verdict"] = record.to_mapping(benchmark.verdict)
    plain["speedup"] = {
        "eager": benchmark.against(benchmark.eager),
        "compiled": benchmark.against(benchmark.compiled),
    }
    plain["fraction"] = benchmark.fraction
    plain["slower"] = benchmark.slower
    return plain


def to_line(benchmark: Benchmark) -> str:
    return json.dumps(to_mapping(benchmark), allow_nan=False, ensure_ascii=False)


def append(benchmark: Benchmark, path: Path) -> None:
    """Adds one line to the file.

    Raises:
        OSError: it cannot be written.
    """
    with path.open("a", encoding="utf-8") as stream:
        stream.write(to_line(benchmark) + "\n")
