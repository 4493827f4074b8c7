"""`--fast` ends with the first violation, and acquits nobody of what it did not ask."""

from __future__ import annotations

from dataclasses import replace
from datetime import date
from pathlib import Path

from adjudge.contract import Outcome, Standing, Verdict
from adjudge.contracts.waivers import load
from adjudge.frontends import kernelbench
from adjudge.judge import fast
from adjudge.judge.replay import replay
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
    program, candidate = kernelbench.load(SOFTMAX / "broken.py", SOFTMAX / "reference.py")
    again = replay(finding.violation.replay, program, candidate, Options(zygote=zygote))
    assert again.finding is not None
    assert again.same_inputs
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


#: Wrong by half, and it writes its input. The latter is found first, by a cheaper gate.
TWICE_WRONG = """
import torch

class ModelNew(torch.nn.Module):
    def forward(self, x):
        y = torch.softmax(x, dim=-1)
        x.zero_()
        return y * 1.5
"""


def test_it_does_not_end_with_one_that_a_waiver_accepts(tmp_path: Path, zygote: Zygote) -> None:
    program, candidate = kernelbench.from_source(
        (SOFTMAX / "reference.py").read_text(), TWICE_WRONG, "twice"
    )
    file = tmp_path / "waivers.toml"
    file.write_text(
        'schema = 1\n[[waiver]]\ngate = "mutates-input"\nsignature = "mutated"\n'
        'scope = "declared"\nreason = "known"\nexpires = 2999-12-31\n'
    )
    names = ("mutates-input", "wrong-value", "shape-dependent")
    options = Options(zygote=zygote, fast=True, examine=False, gates=names)
    alone = verify(program, candidate, options)
    assert [f.gate for f in alone.violations] == ["mutates-input"]
    waivers = load(file, date(2026, 1, 1))
    found = {
        f.gate: f for f in verify(program, candidate, replace(options, waivers=waivers)).findings
    }
    assert found["mutates-input"].waived
    assert found["wrong-value"].outcome is Outcome.VIOLATION
    assert not found["wrong-value"].waived
    assert found["shape-dependent"].reason == fast.LEFT_OUT
