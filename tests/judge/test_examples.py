"""The bundled pairs: the correct half is sound, the broken one is convicted by the gate it is for."""

from __future__ import annotations

from pathlib import Path

import pytest

from adjudge.contract import Standing
from adjudge.frontends import kernelbench
from adjudge.judge.replay import replay
from adjudge.judge.verify import Options, verify
from adjudge.worker.client import Zygote

ROOT = Path(__file__).resolve().parents[2] / "examples"
GATES = {
    "softmax_tail": "shape-dependent",
    "layer_norm_variance": "cancellation",
    "argmax_ties": "wrong-value",
    "cross_entropy_masked": "wrong-value",
    "rms_norm_strided": "layout-dependent",
    "grouped_sum_empty": "stale-output",
    "gelu_overflow": "wrong-value",
    "column_count_atomics": "stale-output",
}


def test_all_are_named() -> None:
    assert set(GATES) == {path.parent.name for path in ROOT.glob("*/reference.py")}


@pytest.mark.parametrize("name", GATES)
def test_the_correct_half_is_sound(name: str, zygote: Zygote) -> None:
    program, candidate = kernelbench.load(ROOT / name / "correct.py", ROOT / name / "reference.py")
    verdict = verify(program, candidate, Options(zygote=zygote))
    assert verdict.standing is Standing.SOUND, [(f.gate, f.reason) for f in verdict.violations]


@pytest.mark.parametrize("name", GATES)
def test_the_broken_half_is_convicted_and_replays_byte_for_byte(name: str, zygote: Zygote) -> None:
    program, candidate = kernelbench.load(ROOT / name / "broken.py", ROOT / name / "reference.py")
    verdict = verify(program, candidate, Options(zygote=zygote))
    convicted = {finding.gate for finding in verdict.violations}
    assert GATES[name] in convicted
    # None of the faults is a matter of sums kept in too little precision.
    assert "narrow-accumulator" not in convicted
    for finding in verdict.violations:
        assert finding.violation is not None
        again = replay(finding.violation.replay, program, candidate, Options(zygote=zygote))
        assert again.finding is not None
        assert again.same_inputs
        assert again.same_outputs in (True, None)
