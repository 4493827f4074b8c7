"""Rounds of a short and a long span: what they say of one call, and how surely."""

from __future__ import annotations

import random
import secrets
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Literal

from adjudge.bench.subject import Shown, Span, Subject

#: Rounds after which it is first looked whether they suffice, and after which no more are made. The
#: second least and second greatest of nine hold their median between them in 96 of 100 cases, whatever
#: the distribution: 1 - 2 (1 + 9) / 2**9.
ROUNDS, MOST_ROUNDS = 9, 36
#: Calls of a long span at most, and how many times those of a short one.
MOST_CALLS, RATIO = 1024, 4
#: Answers that are kept for checking.
KEPT = 8

Part = Literal["place", "call", "seal", "claimed"]


@dataclass(frozen=True, slots=True)
class Interval:
    """A median, and what holds it between them in 95 of 100 cases."""

    low: float
    median: float
    high: float


def interval(values: Sequence[float]) -> Interval:
    """The interval of `values`' median by its order statistics, whatever their distribution."""
    ordered = sorted(values)
    size = len(ordered)
    # P(fewer than k of n fall below the median) for the greatest k that leaves 2.5 % on each side.
    below, chance, term = 0, 0.0, 0.5**size
    for k in range(size // 2):
        chance += term
        if chance > 0.025:
            break
        below = k
        term *= (size - k) / (k + 1)
    return Interval(ordered[below], median(ordered), ordered[-1 - below])


@dataclass(frozen=True, slots=True)
class Round:
    short: Span
    long: Span

    def slope(self, part: Part) -> float:
        """Seconds of one call: what a span takes beside its calls falls out."""
        more = self.long.count - self.short.count
        return float(getattr(self.long, part) - getattr(self.short, part)) / more

    @property
    def beside(self) -> float:
        """Seconds that a span takes beside its calls."""
        return self.short.call - self.short.count * self.slope("call")


@dataclass(frozen=True, slots=True)
class Measured:
    """All rounds of one subject."""

    rounds: tuple[Round, ...]

    def of(self, part: Part) -> Interval:
        """Seconds a call."""
        return interval([r.slope(part) for r in self.rounds])

    @property
    def beside(self) -> Interval:
        """Seconds a span."""
        return interval([r.beside for r in self.rounds])

    @property
    def ahead(self) -> Interval:
        """Seconds a call by which the judge's clock is ahead of the worker's own."""
        return interval([r.slope("call") - r.slope("claimed") for r in self.rounds])

    def beyond(self, other: Measured, value: Callable[[Round], float]) -> Interval:
        """By how much `value` is greater here than of another subject in the same round: what disturbs a
        round disturbs both, and falls out."""
        pairs = zip(self.rounds, other.rounds, strict=True)
        return interval([value(mine) - value(theirs) for mine, theirs in pairs])

    @property
    def more(self) -> int:
        """Calls that a long span has more than a short one."""
        return self.rounds[0].long.count - self.rounds[0].short.count


def counts(subject: Subject, *, target: float, memory: int) -> tuple[int, int]:
    """Calls of a short and of a long span. The spans made on the way warm the subject up.

    Args:
        target: seconds that a long span should take.
        memory: bytes that the inputs and answers of a span may take.

    Raises:
        Fell: the subject did not answer.
    """
    first = subject.span(1)
    room = memory // max(1, subject.ring.nbytes + first.nbytes)
    count, most = 2, max(2, min(MOST_CALLS, room))
    while subject.span(count).call < target and count < most:
        count = min(2 * count, most)
    return max(1, count // RATIO), count


@dataclass(frozen=True, slots=True)
class Campaign:
    measured: Mapping[str, Measured]
    #: Answers of calls chosen at random among the first subject's, after their clock had stopped.
    shown: tuple[Shown, ...]
    #: Calls that they were chosen from.
    calls: int


def run(
    subjects: Sequence[Subject],
    *,
    target: float,
    memory: int,
    enough: Callable[[Mapping[str, Measured]], bool],
    seconds: float,
) -> Campaign:
    """Rounds of all subjects in turn, so that what drifts drifts for all of them.

    Args:
        enough: whether what was measured suffices.
        seconds: after which no more rounds are made than the first ones.

    Raises:
        Fell: a subject did not answer.
    """
    sizes = {s.name: counts(s, target=target, memory=memory) for s in subjects}
    found: dict[str, list[Round]] = {s.name: [] for s in subjects}
    shown: list[Shown] = []
    spans = calls = 0
    begun = time.monotonic()
    chance = random.SystemRandom()
    while True:
        for subject in chance.sample(list(subjects), len(subjects)):
            made: dict[int, Span] = {}
            for count in chance.sample(sizes[subject.name], 2):
                made[count] = span = subject.span(count)
                if subject is subjects[0]:
                    spans, calls = spans + 1, calls + count
                    # Each span has the same chance of being kept, whenever the rounds end.
                    place = len(shown) if len(shown) < KEPT else chance.randrange(spans)
                    if place < KEPT:
                        shown[place : place + 1] = [subject.show(span, secrets.randbelow(count))]
            found[subject.name].append(Round(*(made[n] for n in sizes[subject.name])))
        number = len(found[subjects[0].name])
        if number < ROUNDS:
            continue
        measured = {name: Measured(tuple(rounds)) for name, rounds in found.items()}
        late = time.monotonic() - begun > seconds
        if enough(measured) or number >= MOST_ROUNDS or late:
            return Campaign(measured, tuple(shown), calls)
