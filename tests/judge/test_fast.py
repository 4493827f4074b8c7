"""`--fast` ends with the first violation, and acquits nobody of what it did not ask."""

from __future__ import annotations

from pathlib import Path

from adjudge.contract import Outcome, Standing, Verdict
from adjudge.frontends import kernelbench
from adjudge.judge import fast
from adjudge.judge.verify import Options, verify
from adjudge.worker.client import Zygote

SOFTMAX = Path(__file__).parents[2] / "examples" / "softmax_tail"


def judged(half: str, zygote: Zygote) -> Verdict:
    program, candidate = kernelbench.load(SOFTMAX / half, SOFTMAX / "reference.py")
    return verify(program, candidate, Options(zygote=zygote, fast=True, examine=False))


def test_it_ends_with_the_first_violation(zygote: Zygote) -> None:
    verdict = judged("broken.py", zygote)
    (finding,) = verdict.violations
    assert finding.gate == "shape-dependent"
    assert finding.violation is not None
    assert finding.violation.replay
    others = {f.gate: f.outcome for f in verdict.findings if f.reason == fast.LEFT_OUT}
    assert len(others) == len(verdict.findings) - 1
    assert set(others.values()) == {Outcome.NOT_APPLICABLE}
    assert verdict.standing is Standing.FRAGILE
    # The whole battery runs 150 and more.
    assert verdict.probes < 80


def test_without_a_violation_every_gate_is_asked(zygote: Zygote) -> None:
    verdict = judged("correct.py", zygote)
    assert verdict.standing is Standing.SOUND
    assert not [f for f in verdict.findings if f.reason == fast.LEFT_OUT]
