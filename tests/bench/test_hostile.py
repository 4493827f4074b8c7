"""What a candidate may try to look faster than it is, timed on the CPU."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from adjudge.bench.bench import Settings, timed
from adjudge.bench.record import Benchmark, append
from adjudge.contract import Finding, Provenance, Standing, Verdict
from adjudge.frontends import kernelbench
from adjudge.judge.verify import Options
from adjudge.worker.client import Zygote

REFERENCE = """
import torch


class Model(torch.nn.Module):
    def forward(self, x, w):
        for _ in range(12):
            x = torch.tanh(x @ w)
        return x


def get_inputs():
    return [torch.rand(96, 96), torch.randn(96, 96) / 10]


def get_init_inputs():
    return []
"""
HONEST = REFERENCE.replace("class Model(", "class ModelNew(")

#: The pointer of an input says nothing of its content.
KEPT_BY_POINTER = """
kept = {}
honest = ModelNew.forward


def forward(self, x, w):
    if x.shape not in kept:
        kept[x.shape] = honest(self, x, w)
    return kept[x.shape].clone()


ModelNew.forward = forward
"""
SKIPS_LATER_CALLS = """
calls = 0
honest = ModelNew.forward


def forward(self, x, w):
    global calls
    calls += 1
    return honest(self, x, w) if calls < 4 else torch.zeros_like(x)


ModelNew.forward = forward
"""
#: One thread does all work, later than a busy machine takes for all calls.
LEFT_ON_A_THREAD = """
import threading, time

honest = ModelNew.forward
left = []


def later():
    time.sleep(60)
    for out, answer in left:
        out.copy_(answer())


def forward(self, x, w):
    if not left:
        threading.Thread(target=later, daemon=True).start()
    out = torch.zeros_like(x)
    left.append((out, lambda: honest(self, x, w)))
    return out


ModelNew.forward = forward
"""
PATCHED_CLOCK = """
import sys, time

timing = sys.modules["adjudge.worker.timing"]
timing.perf_counter = lambda: time.perf_counter() / 10
"""
#: Answers when it is asked for them, after the clock has stopped.
AFTERWARDS = """
import sys

Bench = sys.modules["adjudge.worker.timing"].Bench
Bench.honest_seal = Bench.seal


def call(self):
    return {"status": "called", "claimed": 1e-6}


def seal(self):
    self._answers = [self._run.built(*args, **kwargs) for args, kwargs in self._calls]
    return self.honest_seal()


Bench.call, Bench.seal = call, seal
"""
KERNEL = """
import triton
import triton.language as tl


@triton.jit
def k(x):
    pass
"""
#: Answers before the clock of the calls starts.
BEFOREHAND = """
import sys

Bench = sys.modules["adjudge.worker.timing"].Bench
Bench.honest_place = Bench.place


def place(self, header, shared):
    reply = self.honest_place(header, shared)
    self._answers = [self._run.built(*args, **kwargs) for args, kwargs in self._calls]
    return reply


def call(self):
    return {"status": "called", "claimed": 1e-6}


Bench.call, Bench.place = call, place
"""


@pytest.fixture(scope="module")
def timing() -> Iterator[Zygote]:
    with Zygote.start(face="cpu", allow_compiler=True) as running:
        yield running


def measured(timing: Zygote, source: str, verdict: Verdict | None = None) -> Benchmark:
    program, candidate = kernelbench.from_source(REFERENCE, source, "candidate")
    settings = Settings(seconds=5.0, compiled=False, roofline=False, zygote=timing)
    return timed(program, candidate, verdict or judged(), Options(), settings)


def judged(*findings: Finding) -> Verdict:
    """A verdict that was reached before."""
    provenance = Provenance(
        adjudge="", task="", candidate="", gates="", runner="interpret", device="cpu", versions=(),
        isolation=(),
    )  # fmt: skip
    return Verdict(
        name="candidate",
        standing=Standing.SOUND,
        findings=findings,
        grade="fp32",
        required="fp32",
        provenance=provenance,
    )


def test_an_honest_candidate_is_checked_and_timed_as_the_reference_is(
    timing: Zygote, tmp_path: Path
) -> None:
    found = measured(timing, HONEST)
    assert not found.wrong
    assert found.checked >= 2
    assert set(found.varied) == {"args[0]", "args[1]"}
    # On a loaded machine the noise may be too great for a speed; nothing else may stand against it.
    assert all("noisy" in words for words in found.refused), found.refused
    if found.candidate is not None:
        assert found.eager is not None
        assert 0.5 < found.eager.seconds / found.candidate.seconds < 2.0
    path = tmp_path / "record.jsonl"
    append(found, path)
    append(found, path)
    first, second = path.read_text().splitlines()
    assert first == second
    assert json.loads(first)["verdict"]["standing"] == "sound"


@pytest.mark.parametrize("source", [KEPT_BY_POINTER, SKIPS_LATER_CALLS, LEFT_ON_A_THREAD])
def test_answers_of_timed_calls_convict(timing: Zygote, source: str) -> None:
    found = measured(timing, HONEST + source)
    assert found.wrong
    assert found.candidate is None
    assert found.convicted


@pytest.mark.parametrize(
    ("source", "words"),
    [
        (PATCHED_CLOCK, "clock disagrees"),
        (AFTERWARDS, "after the timed calls"),
        (BEFOREHAND, "before the timed calls"),
    ],
)
def test_work_outside_of_the_clock_is_refused(timing: Zygote, source: str, words: str) -> None:
    found = measured(timing, HONEST + source)
    assert found.candidate is None
    assert any(words in reason for reason in found.refused), found.refused


def test_a_kernel_is_not_timed_in_the_interpreter() -> None:
    program, candidate = kernelbench.from_source(REFERENCE, KERNEL + HONEST, "k")
    found = timed(program, candidate, judged(), Options())
    assert found.candidate is None
    assert "GPU" in found.refused[0]
