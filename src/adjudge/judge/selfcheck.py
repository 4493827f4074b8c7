"""The whole matrix: every calibration pair against every gate."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from math import sqrt

from adjudge.calibration import Pair, pairs
from adjudge.contract import Outcome, Verdict
from adjudge.frontends import kernelbench
from adjudge.gates import GATES
from adjudge.judge.verify import Options, verify
from adjudge.worker.client import Zygote

#: Two-sided 95% normal quantile, for Wilson's interval.
_Z = 1.959963984540054

Progress = Callable[[str, int, int], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One implementation under all gates."""

    #: Gate whose pair it belongs to.
    pair: str
    #: "conforming" or "violating".
    half: str
    #: (gate, outcome) in the order of GATES.
    outcomes: tuple[tuple[str, str], ...]

    @property
    def convicted_by(self) -> tuple[str, ...]:
        return tuple(g for g, outcome in self.outcomes if outcome == Outcome.VIOLATION)


@dataclass(frozen=True, slots=True, kw_only=True)
class Matrix:
    rows: tuple[Row, ...]

    @property
    def missed(self) -> tuple[str, ...]:
        """Violating halves that their own gate does not convict."""
        return tuple(
            r.pair for r in self.rows if r.half == "violating" and r.pair not in r.convicted_by
        )

    @property
    def false_alarms(self) -> tuple[tuple[str, str], ...]:
        """(pair, gate) where a conforming half is convicted."""
        return tuple(
            (r.pair, g) for r in self.rows if r.half == "conforming" for g in r.convicted_by
        )

    @property
    def precision(self) -> tuple[int, int]:
        """Clean (conforming, gate) cells, out of how many were decided."""
        cells = [o for r in self.rows if r.half == "conforming" for _, o in r.outcomes]
        decided = [o for o in cells if o in (Outcome.PASS, Outcome.VIOLATION, Outcome.REFUSAL)]
        return sum(o != Outcome.VIOLATION for o in decided), len(decided)

    @property
    def recall(self) -> tuple[int, int]:
        """Violating halves convicted by their own gate, out of all."""
        halves = [r for r in self.rows if r.half == "violating"]
        return len(halves) - len(self.missed), len(halves)


def wilson(successes: int, trials: int) -> tuple[float, float]:
    """Wilson's 95% score interval for a proportion (Wilson 1927)."""
    if trials == 0:
        return (0.0, 1.0)
    share = successes / trials
    centre = share + _Z * _Z / (2 * trials)
    spread = _Z * sqrt(share * (1 - share) / trials + _Z * _Z / (4 * trials * trials))
    scale = 1 + _Z * _Z / trials
    return ((centre - spread) / scale, (centre + spread) / scale)


def to_json(matrix: Matrix) -> str:
    """The matrix as the golden file holds it."""
    rows = [
        {"pair": row.pair, "half": row.half, "outcomes": dict(row.outcomes)} for row in matrix.rows
    ]
    return json.dumps({"schema": 1, "rows": rows}, indent=1) + "\n"


def selfcheck(
    progress: Progress | None = None, *, zygote: Zygote | None = None, runner: str = "interpret"
) -> Matrix:
    """Judges every half of every pair under every gate.

    Args:
        zygote: a running one of that runner.
    """
    halves = [(pair, half) for pair in pairs() for half in ("conforming", "violating")]
    rows = []
    started = zygote or Zygote.start(runner=runner)
    try:
        for done, (pair, half) in enumerate(halves):
            if progress is not None:
                progress(f"{pair.gate}: {half}", done, len(halves))
            verdict = _judge(pair, half, started, runner)
            outcomes = tuple((f.gate, f.outcome.value) for f in verdict.findings)
            rows.append(Row(pair=pair.gate, half=half, outcomes=outcomes))
    finally:
        if zygote is None:
            started.close()
    assert all(len(row.outcomes) == len(GATES) for row in rows)
    return Matrix(rows=tuple(rows))


def _judge(pair: Pair, half: str, zygote: Zygote, runner: str) -> Verdict:
    source = pair.conforming if half == "conforming" else pair.violating
    program, candidate = kernelbench.from_source(pair.reference, source, f"{pair.gate}-{half}")
    return verify(program, candidate, Options(zygote=zygote, examine=False, runner=runner))
