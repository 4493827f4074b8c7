"""Whether answers of timed calls are right."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace

from adjudge.bench.ring import Ring
from adjudge.bench.subject import Shown
from adjudge.judge.cases import CaseBuilder
from adjudge.judge.precision import LOOSEST
from adjudge.oracle import REGIMES, Oracle
from adjudge.probe import Probe
from adjudge.program import OutsideDomain, answer

#: Seconds of one evaluation of the reference, past which the oracle takes minutes: it makes dozens.
REFERENCE_SECONDS = 0.5
#: Seconds after which no further answer is checked, once two are.
CHECK_SECONDS, LEAST = 10.0, 2


@dataclass(frozen=True, slots=True)
class Checked:
    """What came of the answers that were looked at."""

    #: Wrong answers, in words.
    wrong: tuple[str, ...] = ()
    #: How many answers the oracle has judged.
    number: int = 0
    #: Why none was judged; "" if some were.
    unjudged: str = ""


def check(
    shown: Sequence[Shown],
    ring: Ring,
    builder: CaseBuilder,
    probe: Probe,
    *,
    regime: str,
    grade: str,
) -> Checked:
    """Holds each answer against its seal and against the envelope of the reference at the very inputs.

    Args:
        regime: that the verdict required.
        grade: that the verdict found; below `regime`, gross errors alone are wrong here.
    """
    wrong = [
        f"the answer of timed call {s.number + 1} of {s.count} changed after it was given"
        for s in shown
        if not s.sealed
    ]
    if not shown:
        return Checked(unjudged="no answer was kept")
    begun, number = time.monotonic(), 0
    lenient = grade not in REGIMES or REGIMES.index(grade) > REGIMES.index(regime)
    try:
        for each in shown:
            if number >= LEAST and time.monotonic() - begun > CHECK_SECONDS:
                break
            arguments = ring.arguments(each.secret, each.count, each.number)
            make = builder.make(probe, arguments)
            if not number:
                start = time.monotonic()
                answer(make(), arguments.copied())
                seconds = time.monotonic() - start
                if seconds > REFERENCE_SECONDS:
                    return Checked(
                        tuple(wrong),
                        unjudged=f"the reference takes {seconds:.1f} s here, too long for the oracle "
                        "on a CPU",
                    )
            oracle = Oracle(make, arguments, generic=True)
            found = oracle.compare(
                # Where outputs lie is a matter of other gates.
                replace(each.observation, tampering=()),
                LOOSEST if lenient else regime,
                confirm=True,
                lenient=lenient,
            )
            number += found.outcome != "undecided"
            if found.broken:
                wrong.append(
                    f"the answer of timed call {each.number + 1} of {each.count} is wrong: "
                    f"{found.reason or found.outcome}"
                )
    except OutsideDomain as why:
        return Checked(tuple(wrong), number, f"the reference does not answer: {why}")
    return Checked(
        tuple(wrong), number, "" if number else "the oracle could decide on none of them"
    )
