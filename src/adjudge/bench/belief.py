"""Whether a measured time is believed: pure functions of what was measured.

The candidate shares a process with the code that runs it, so that it may do the work of a call before
the clock of the calls starts, after it stops, or in short spans more slowly than in long ones. The
reference, which is trusted, is timed in a process of its own in the same rounds: it shows what making
inputs, sealing answers and a span's beginning and end take here and now. What the candidate takes beyond
that may be hidden work.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from adjudge.bench.rounds import Measured, Round

#: Part of a call's time by which two honest measurements may differ without a reason being looked for.
SLACK = 0.05
#: Part of a call's time that may remain unaccounted for, by the noise of this machine, where a speed is
#: given all the same, with that part beside it.
LEEWAY = 0.25


@dataclass(frozen=True, slots=True)
class Belief:
    #: Why the time is not believed; empty if it is.
    reasons: tuple[str, ...]
    #: Seconds a call that could have been done outside of what was timed.
    hidden: float


@dataclass(frozen=True, slots=True)
class _Part:
    """What is not timed as calls, where work may hide."""

    #: Seconds a call, of one round.
    value: Callable[[Round], float]
    words: str


def _parts(candidate: Measured) -> tuple[_Part, ...]:
    return (
        _Part(
            lambda r: r.slope("place"),
            "work was done before the timed calls: making the inputs of a call takes",
        ),
        _Part(
            lambda r: r.slope("seal"),
            "work was done after the timed calls: reading the answer of a call takes",
        ),
        _Part(
            lambda r: r.beside / candidate.more,
            "short spans were slowed down: for each further call, a span takes beside its calls",
        ),
    )


def hidden(candidate: Measured, trusted: Measured) -> float:
    """Seconds a call that could have been done outside of the timed calls, at most."""
    return sum(max(0.0, candidate.beyond(trusted, part.value).high) for part in _parts(candidate))


def belief(candidate: Measured, trusted: Measured) -> Belief:
    """What speaks against the candidate's time."""
    seconds = candidate.of("call").median
    slack = SLACK * max(seconds, 0.0)
    reasons = []
    for part in _parts(candidate):
        beyond = candidate.beyond(trusted, part.value)
        if beyond.low > slack:
            reasons.append(f"{part.words} {spoken(beyond.median)} longer than for the reference")
    ahead = candidate.ahead
    if ahead.low > slack or ahead.high < -slack:
        reasons.append(
            f"the worker's clock disagrees with the judge's: {spoken(candidate.of('claimed').median)} "
            f"a call there, {spoken(seconds)} here"
        )
    at_most = hidden(candidate, trusted)
    if seconds <= 0:
        reasons.append("a call takes less than this machine's noise")
    elif not reasons and at_most > LEEWAY * seconds:
        reasons.append(
            f"this machine is too noisy for it: of a call's {spoken(seconds)}, {spoken(at_most)} more "
            "could have been done outside of what was timed"
        )
    return Belief(tuple(reasons), at_most)


def suffices(candidate: Measured, trusted: Measured) -> bool:
    """Whether more rounds would change little."""
    call = candidate.of("call")
    narrow = call.high - call.low <= 2 * SLACK * call.median
    return narrow and hidden(candidate, trusted) <= LEEWAY * call.median


def spoken(seconds: float) -> str:
    """A time with three digits and a unit that suits it."""
    for unit, size in (("s", 1.0), ("ms", 1e-3), ("µs", 1e-6)):
        if abs(seconds) >= size:
            return f"{seconds / size:.3g} {unit}"
    return f"{seconds / 1e-9:.3g} ns"
