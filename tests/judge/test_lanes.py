"""One plan over several processes: what each lane is given, and that the verdict is the same."""

from __future__ import annotations

import os
from dataclasses import replace
from typing import ClassVar

import pytest

from adjudge.calibration import pair
from adjudge.contract import Standing, Verdict
from adjudge.frontends import kernelbench
from adjudge.judge import lanes
from adjudge.judge.docket import MOST_CRASHES, value_point
from adjudge.judge.pool import Pool
from adjudge.judge.runner import Runner
from adjudge.judge.verify import Options, verify
from adjudge.probe import Probe
from adjudge.task import Candidate
from adjudge.worker.client import Worker, Zygote

BASE = Probe(sizes=(("n", 8),))
#: Two cheap gates, one of which asks for a process of its own.
GATES = ("stale-output", "nondeterministic")
#: Writes over what it was given, once it has its answer.
MUTATES = """

honest = ModelNew.forward


def forward(self, x, marked):
    out = honest(self, x, marked)
    x.mul_(2)
    return out


ModelNew.forward = forward
"""


def test_probes_of_the_same_values_share_a_lane() -> None:
    probes = [replace(BASE, seed=s, fill=f) for s in range(12) for f in ("zero", "nan", "finite")]
    parts = lanes.partition(probes, 4)
    assert len(parts) == 4
    assert sorted(map(repr, (p for part in parts for p in part))) == sorted(map(repr, probes))
    for part in parts:
        elsewhere = {value_point(p) for other in parts if other is not part for p in other}
        assert elsewhere.isdisjoint(map(value_point, part))
        assert part == [p for p in probes if p in part]
    assert max(map(len, parts)) <= 2 * min(map(len, parts))


def test_probes_for_other_processes_stay_in_the_first_lane() -> None:
    probes = [replace(BASE, seed=s) for s in range(20)] + [replace(BASE, seed=7, process=1)]
    first, *_ = lanes.partition(probes, 4)
    assert {p for p in probes if p.seed == 7} <= set(first)


def test_a_verdict_over_lanes_is_the_verdict_of_one_process(zygote: Zygote) -> None:
    texts = pair("stale-output")
    program, candidate = kernelbench.from_source(texts.reference, texts.violating, "stale")
    one, three = (
        verify(
            program,
            candidate,
            Options(zygote=zygote, gates=GATES, examine=False, lanes=count),
        )
        for count in (1, 3)
    )
    assert one.violations
    assert [(f.gate, f.outcome, f.scope, f.reason) for f in one.findings] == [
        (f.gate, f.outcome, f.scope, f.reason) for f in three.findings
    ]
    assert one.probes == three.probes


def test_violations_are_made_small_in_the_lanes_that_are_there(
    zygote: Zygote, monkeypatch: pytest.MonkeyPatch
) -> None:
    texts = pair("stale-output")
    source = texts.violating + MUTATES
    program, candidate = kernelbench.from_source(texts.reference, source, "both")
    spawned: list[int] = []
    spawn = Zygote.spawn

    def counted(self: Zygote, cache: str = "", home: str = "") -> Worker:
        worker = spawn(self, cache, home)
        spawned.append(worker.pid)
        return worker

    monkeypatch.setattr(Zygote, "spawn", counted)
    gates = ("stale-output", "mutates-input", "retains-state")

    def verdict(count: int) -> tuple[Verdict, int]:
        before = len(spawned)
        options = Options(zygote=zygote, gates=gates, examine=False, lanes=count)
        return verify(program, candidate, options), len(spawned) - before

    (one, alone), (two, together) = verdict(1), verdict(2)
    assert {f.gate for f in one.violations} == {"stale-output", "mutates-input"}
    assert [
        (f.gate, f.outcome, f.scope, f.violation and f.violation.replay) for f in one.findings
    ] == [(f.gate, f.outcome, f.scope, f.violation and f.violation.replay) for f in two.findings]
    # Both forks, of the plan and of the shrinking, have one worker in turn.
    assert together == alone + 1


def test_tasks_of_a_fork_that_dies_are_done_here(zygote: Zygote) -> None:
    texts = pair("stale-output")
    _, candidate = kernelbench.from_source(texts.reference, texts.conforming, "c")
    here = os.getpid()

    class Found:
        runner = Runner(zygote, candidate, timeout=10.0)
        adopted: ClassVar[list[object]] = []

    def dies(docket: object) -> int:
        if os.getpid() != here:
            os._exit(9)
        return 7

    with Found.runner:
        assert lanes.each(Found(), [lambda _: 1, dies, lambda _: 3], 2) == [1, 7, 3]  # type: ignore[arg-type]


def test_a_candidate_that_always_crashes_costs_few_processes(zygote: Zygote) -> None:
    texts = pair("stale-output")
    wreck = texts.conforming + "\nimport os\nModelNew.forward = lambda self, *a: os.abort()\n"
    program, candidate = kernelbench.from_source(texts.reference, wreck, "wreck")
    verdict = verify(program, candidate, Options(zygote=zygote, examine=False))
    assert verdict.standing is Standing.VIOLATING
    assert [f.gate for f in verdict.violations] == ["wrong-value"]
    # Beside the plan: the scouting run, the declared shape, and the shrinking of the violation.
    assert verdict.probes < MOST_CRASHES + 50


def _loaded(source: str, zygote: Zygote) -> tuple[str, int, bool]:
    with zygote.brood() as brood:
        worker = brood.worker()
        reply = worker.load(Candidate(name="c", source=source, entry="f", kind="function"))
        worker.close()
    return source, os.getpid(), reply.observation is None


def test_the_judges_of_a_pool_have_workers_of_their_own() -> None:
    sources = ["f = abs", "f = missing", "f = max", "f = min"]
    with Pool(judges=2, runner="interpret") as pool:
        found = list(pool.answers(_loaded, sources))
    assert {(source, fine) for source, _, fine in found} == {
        (source, source != "f = missing") for source in sources
    }
    assert os.getpid() not in {pid for _, pid, _ in found}


def test_what_is_done_beside_a_part_counts_in_its_lane() -> None:
    probes = [replace(BASE, seed=s) for s in range(24)]
    parts = lanes.partition(probes, 3, beside=1e3)
    assert [len(part) for part in parts] == [12, 0, 12]
