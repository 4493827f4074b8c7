"""The calibration matrix, and what makes its violating halves worth convicting."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from adjudge.calibration import pairs
from adjudge.frontends import kernelbench
from adjudge.judge.cases import CaseBuilder
from adjudge.judge.selfcheck import selfcheck, to_json, wilson
from adjudge.probe import Probe, sizes_of
from adjudge.worker.client import Zygote

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = sorted(path.parent for path in (ROOT / "examples").glob("*/reference.py"))


def accepted(reference: str, candidate: str, zygote: Zygote) -> bool:
    """The field's usual test: five seeds at the native shape, allclose at 1e-2."""
    program, source = kernelbench.from_source(reference, candidate, "usual")
    builder = CaseBuilder(program, by_name=bool(program.task.parameters))
    worker = zygote.spawn()
    try:
        assert worker.load(source).observation is None
        for seed in range(5):
            case = builder.build(Probe(sizes=sizes_of(program.task.native), seed=seed))
            observation = worker.run(case.request, timeout=60.0)
            expected = builder.make(case.probe, case.arguments)()(*case.arguments.args)
            if not observation.answered:
                return False
            got = observation.outputs[0].data
            if got.shape != tuple(expected.shape):
                return False
            if not np.allclose(got, expected.detach().numpy(), atol=1e-2, rtol=1e-2):
                return False
        return True
    finally:
        worker.close()


def test_the_matrix_is_the_golden_one(zygote: Zygote) -> None:
    matrix = selfcheck(zygote=zygote)
    assert not matrix.missed
    assert not matrix.false_alarms
    golden = (ROOT / "docs" / "golden-matrix.json").read_text()
    assert json.loads(to_json(matrix)) == json.loads(golden)


@pytest.mark.parametrize("gate", [pair.gate for pair in pairs()])
def test_the_usual_test_accepts_the_violating_half(gate: str, zygote: Zygote) -> None:
    pair = next(p for p in pairs() if p.gate == gate)
    assert accepted(pair.reference, pair.violating, zygote)
    assert accepted(pair.reference, pair.conforming, zygote)


@pytest.mark.parametrize("folder", EXAMPLES, ids=lambda folder: folder.name)
def test_the_usual_test_accepts_the_broken_example(folder: Path, zygote: Zygote) -> None:
    reference = (folder / "reference.py").read_text()
    assert accepted(reference, (folder / "broken.py").read_text(), zygote)


def test_wilson_gives_the_published_interval() -> None:
    """Newcombe 1998, table I: 81 of 263 is 0.2553 to 0.3662; 0 of 20 is 0 to 0.1611."""
    assert wilson(81, 263) == pytest.approx((0.2553, 0.3662), abs=5e-5)
    assert wilson(0, 20) == pytest.approx((0.0, 0.1611), abs=5e-5)
