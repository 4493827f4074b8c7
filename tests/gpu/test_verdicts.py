"""The bundled pairs judged on a GPU: the same verdicts as in the interpreter."""

from __future__ import annotations

from pathlib import Path

import pytest

from adjudge.contract import Standing
from adjudge.frontends import kernelbench
from adjudge.judge.replay import replay
from adjudge.judge.verify import Options, verify
from adjudge.worker.client import Zygote

pytestmark = pytest.mark.gpu

ROOT = Path(__file__).resolve().parents[2] / "examples"
#: Forks of the judge that run the probes of one verdict.
LANES = 2
NAMES = sorted(path.parent.name for path in ROOT.glob("*/reference.py"))


@pytest.mark.parametrize("name", NAMES)
def test_the_correct_half_is_sound(name: str, gpu: Zygote) -> None:
    program, candidate = kernelbench.load(ROOT / name / "correct.py", ROOT / name / "reference.py")
    verdict = verify(program, candidate, Options(zygote=gpu, runner="cuda", lanes=LANES))
    assert verdict.standing is Standing.SOUND, [(f.gate, f.reason) for f in verdict.violations]


@pytest.mark.parametrize("name", NAMES)
def test_the_broken_half_is_convicted_and_replays(name: str, gpu: Zygote) -> None:
    program, candidate = kernelbench.load(ROOT / name / "broken.py", ROOT / name / "reference.py")
    options = Options(zygote=gpu, runner="cuda", lanes=LANES)
    verdict = verify(program, candidate, options)
    assert verdict.violations
    for finding in verdict.violations:
        assert finding.violation is not None
        again = replay(finding.violation.replay, program, candidate, options)
        assert again.finding is not None
        assert again.same_inputs
