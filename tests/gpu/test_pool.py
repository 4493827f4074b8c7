"""Candidates that share one GPU: none is the worse for its neighbours."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest

from adjudge.contract import Standing
from adjudge.frontends import kernelbench
from adjudge.judge.pool import Pool
from adjudge.judge.verify import Options, verify
from adjudge.worker.client import Zygote

pytestmark = pytest.mark.gpu

SOFTMAX = Path(__file__).resolve().parents[2] / "examples" / "softmax_tail"
GATES = ("wrong-value", "nondeterministic", "stale-output")
#: Takes what memory there is and keeps it.
HOG = """

kept = []
honest = ModelNew.forward


def forward(self, x):
    try:
        while True:
            kept.append(torch.empty(1 << 30, dtype=torch.uint8, device=x.device))
    except torch.OutOfMemoryError:
        kept.pop()
    return honest(self, x)


ModelNew.forward = forward
"""
#: Breaks its own context.
WRECK = """

def forward(self, x):
    return x[torch.tensor([1 << 20], device=x.device)]


ModelNew.forward = forward
"""


@dataclass(frozen=True)
class Job:
    name: str
    source: str


def judge(job: Job, zygote: Zygote) -> tuple[str, Standing]:
    reference = (SOFTMAX / "reference.py").read_text()
    program, candidate = kernelbench.from_source(reference, job.source, job.name)
    options = Options(zygote=zygote, runner="cuda", gates=GATES, examine=False)
    return job.name, verify(program, candidate, options).standing


def test_neighbours_of_a_hog_and_of_a_wreck_are_judged_as_ever(gpu: Zygote) -> None:
    correct = (SOFTMAX / "correct.py").read_text()
    jobs = [Job("hog", correct + HOG), Job("wreck", correct + WRECK)]
    jobs += [Job(f"honest {n}", correct) for n in range(6)]
    with Pool(judges=4, runner="cuda") as pool:
        found = dict(pool.answers(judge, jobs))
    assert found["wreck"] is Standing.VIOLATING
    assert {s for name, s in found.items() if name.startswith("honest")} == {Standing.SOUND}, found


def test_lanes_answer_as_one_process_does(gpu: Zygote) -> None:
    program, candidate = kernelbench.load(SOFTMAX / "broken.py", SOFTMAX / "reference.py")
    one, four = (
        verify(program, candidate, Options(zygote=gpu, runner="cuda", examine=False, lanes=lanes))
        for lanes in (1, 4)
    )
    assert [(f.gate, f.outcome, f.scope, f.reason) for f in one.findings] == [
        (f.gate, f.outcome, f.scope, f.reason) for f in four.findings
    ]
    assert one.probes == four.probes
