"""One plan run in several processes at once, each with a worker of its own.

Most of a verdict's time goes into compiling kernels for the sizes, dtypes and layouts that probes ask
for, and into the oracle's small operations; both want more than one core. The judge forks: each fork
runs its part of the plan with a worker that holds the same candidate, compares what comes back, and
returns both. Forks are the judge's own code and trusted as it is; nothing else speaks to workers.
"""

from __future__ import annotations

import os
import pickle
import time
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, NoReturn, TypeVar

from adjudge.judge.docket import FIRST_FRESH, Docket, Shared, value_point
from adjudge.probe import Probe
from adjudge.worker.client import Lane, LoadReply
from adjudge.worker.sandbox import die_with_parent

#: Probes below which a lane is not worth its fork, which takes some ten milliseconds.
LEAST = 8
#: Costs in the order of milliseconds: of a run, of the oracle at one point, and of compiling for sizes,
#: dtype and layout that the lane has not met.
_RUN, _ORACLE, _COMPILE = 3.0, 12.0, 60.0
#: The same of points past 2**16 rows: kernels are compiled, and a large answer is compared.
_BESIDE = 300.0

T = TypeVar("T")
R = TypeVar("R")


def run(
    docket: Docket,
    probes: Sequence[Probe],
    lanes: int,
    beside: Callable[[Docket], T] | None = None,
) -> T | None:
    """Makes the runs of `probes` that were not made yet, in this process and in `lanes` - 1 forks.

    What a fork that fails has not answered for is run here.

    Args:
        beside: what one of the forks does before its part; the runs that it makes are adopted.

    Returns:
        What `beside` has returned; None where no fork has done it.
    """
    missing = [p for p in dict.fromkeys(probes) if p not in docket.observations]
    wanted = docket.affordable(missing)
    count = min(lanes, len(wanted) // LEAST + 1)
    parts = partition(wanted, count, _BESIDE if beside is not None else 0.0)
    begun = [
        _Fork(docket, number, _part(part, beside if number == 1 else None))
        for number, part in enumerate(parts[1:], 1)
    ]
    start = time.perf_counter()
    try:
        docket.run(parts[0])
    finally:
        docket.timings["probes, here"] = time.perf_counter() - start
        answers = [fork.answer() for fork in begun]
    docket.run([p for p in wanted if p not in docket.skipped])
    return answers[0].said if answers else None


def each(docket: Docket, tasks: Sequence[Callable[[Docket], R]], lanes: int) -> list[R]:
    """What each task returns, done in this process and in up to `lanes` - 1 forks; their runs are
    adopted. What a fork that fails should have done is done here."""
    count = min(lanes, len(tasks))
    begun = [_Fork(docket, n, _all(tasks[n::count])) for n in range(1, count)]
    found: dict[int, R] = {}
    try:
        for number in range(0, len(tasks), max(count, 1)):
            found[number] = tasks[number](docket)
    finally:
        answers = [fork.answer() for fork in begun]
    for lane, answer in enumerate(answers, 1):
        if answer.said is not None:
            found |= dict(zip(range(lane, len(tasks), count), answer.said, strict=True))
    return [found[n] if n in found else task(docket) for n, task in enumerate(tasks)]


def _part(
    probes: list[Probe], beside: Callable[[Docket], T] | None
) -> Callable[[Docket], T | None]:
    def work(docket: Docket) -> T | None:
        said = beside(docket) if beside is not None else None
        docket.run(probes)
        return said

    return work


def _all(tasks: Sequence[Callable[[Docket], R]]) -> Callable[[Docket], list[R]]:
    return lambda docket: [task(docket) for task in tasks]


def partition(probes: Sequence[Probe], lanes: int, beside: float = 0.0) -> list[list[Probe]]:
    """The probes in lanes of about equal cost, each in the order of the plan.

    Those with the same values stay together: they share an oracle, and repetitions must share a process.
    The first lane has those that ask for other processes: the workers begun for them are there.

    Args:
        beside: what the second lane costs before its first probe.
    """
    groups: dict[Probe, list[Probe]] = {}
    for probe in probes:
        groups.setdefault(value_point(probe), []).append(probe)
    costs = [beside if lane == 1 else 0.0 for lane in range(lanes)]
    met: list[set[tuple[object, ...]]] = [set() for _ in range(lanes)]
    lane_of: dict[Probe, int] = {}

    def cost(lane: int, group: list[Probe]) -> float:
        new = {_compiled_for(p) for p in group} - met[lane]
        return costs[lane] + _ORACLE + _RUN * len(group) + _COMPILE * len(new)

    for point, group in groups.items():
        elsewhere = any(p.process for p in group)
        lane = 0 if elsewhere else min(range(lanes), key=lambda n: cost(n, group))
        costs[lane] = cost(lane, group)
        met[lane] |= {_compiled_for(p) for p in group}
        lane_of[point] = lane
    parts: list[list[Probe]] = [[] for _ in range(lanes)]
    for probe in probes:
        parts[lane_of[value_point(probe)]].append(probe)
    # What is done beside a part is done where that is empty, too.
    return [parts[0], *(p for n, p in enumerate(parts[1:]) if p or (beside and n == 0))]


def _compiled_for(probe: Probe) -> tuple[object, ...]:
    """What probably decides which kernels a run needs. Of a size, Triton's specialisation sees whether
    it is one and whether 16 divides it; block sizes are often the next power of two."""
    sizes = tuple((n == 1, n % 16 == 0, max(n - 1, 0).bit_length()) for _, n in probe.sizes)
    return sizes, probe.dtype, probe.layout, probe.config, probe.cotangent != "none"


@dataclass(frozen=True, slots=True)
class _Answer:
    found: Shared | None = None
    said: Any = None
    #: As of `Lane`, where the lane's worker lives on.
    reply: LoadReply | None = None
    #: What went wrong, in words.
    fault: str = ""


class _Fork:
    """Work on a docket in a process of its own."""

    def __init__(self, docket: Docket, number: int, work: Callable[[Docket], Any]) -> None:
        self._docket = docket
        self._lane = docket.runner.lane()
        self._answers, answers = os.pipe()
        self._pid = os.fork()
        if self._pid == 0:
            _work(docket, number, work, self._lane, answers)
        os.close(answers)

    def answer(self) -> _Answer:
        """What the work has returned, its runs adopted; nothing if it failed."""
        with os.fdopen(self._answers, "rb") as stream:
            raw = stream.read()
        os.waitpid(self._pid, 0)
        # Written by a fork of this very process: nothing of the candidate's is in it but bytes.
        answer: _Answer = pickle.loads(raw) if raw else _Answer()
        if answer.reply is not None:
            self._docket.runner.take_back(replace(self._lane, reply=answer.reply))
        else:
            self._lane.let_go()
        if answer.found is not None:
            self._docket.adopt(answer.found)
        return answer


def _work(
    docket: Docket, number: int, work: Callable[[Docket], Any], lane: Lane, answers: int
) -> NoReturn:
    try:
        die_with_parent()
        try:
            docket.within(docket.runner.within(lane), FIRST_FRESH * (number + 1))
            known = frozenset(docket.observations)
            with docket.runner as runner:
                said = work(docket)
                docket.timings["forks: runs"] = runner.seconds
                docket.timings["forks: workers"] = runner.waited
                docket.timings["forks: compiling"] = runner.compiling
                answer = _Answer(docket.shared(beyond=known), said, runner.spare(lane))
        except Exception:
            answer = _Answer(fault=traceback.format_exc())
        with os.fdopen(answers, "wb") as stream:
            pickle.dump(answer, stream, protocol=pickle.HIGHEST_PROTOCOL)
    finally:
        os._exit(0)
