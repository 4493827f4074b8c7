"""Runs probes in worker processes: spawns them, reloads after a death, keeps time."""

from __future__ import annotations

import time

from adjudge.closing import Closing
from adjudge.judge.cases import Case
from adjudge.observation import Observation, Status
from adjudge.task import Candidate
from adjudge.worker.client import Brood, Lane, LoadReply, Worker, Zygote

#: Seconds given to a run that should have answered at once, before it counts as a hang.
PATIENT_SECONDS = 30.0


class Runner(Closing):
    """Worker processes for one candidate, numbered as probes number them."""

    def __init__(
        self,
        zygote: Zygote,
        candidate: Candidate,
        *,
        timeout: float,
        lanes: int = 1,
        brood: Brood | None = None,
    ) -> None:
        """Begins the workers.

        Args:
            lanes: how many of them will run at once.
            brood: workers that were begun elsewhere.

        Raises:
            HarnessError: the machine cannot start a worker.
        """
        self.zygote = zygote
        self._brood = brood or zygote.brood(lanes)
        self.candidate = candidate
        #: Seconds one run may take.
        self.timeout = timeout
        self.runs = 0
        self.seconds = 0.0
        #: Seconds until workers had opened their contexts and loaded the candidate.
        self.waited = 0.0
        #: Seconds that kernels took to compile, as the workers tell them, and how many there were.
        self.compiling, self.compiled = 0.0, 0
        self._workers: dict[int, Worker] = {}
        self._replies: dict[int, LoadReply] = {}

    def lane(self) -> Lane:
        """A worker for a fork of this process."""
        return self._brood.lane()

    def within(self, lane: Lane) -> Runner:
        """In the fork: the runner of that lane."""
        brood = Brood.within(lane)
        runner = Runner(lane.zygote, self.candidate, timeout=self.timeout, brood=brood)
        if lane.reply is not None:
            runner._workers[0], runner._replies[0] = lane.worker, lane.reply
        return runner

    def spare(self, lane: Lane) -> LoadReply | None:
        """In the fork: lets the lane's worker live on, and says what loading said there; None if it has
        ended or holds no candidate."""
        if self._workers.get(0) is not lane.worker or not lane.worker.alive:
            return None
        del self._workers[0]
        return self._replies[0]

    def take_back(self, lane: Lane) -> None:
        """Keeps a lane, whose fork has ended, for the next one."""
        self._brood.take_back(lane)

    def close(self) -> None:
        for worker in self._workers.values():
            worker.close()
        self._workers.clear()
        self._brood.close()

    def loaded(self, process: int = 0) -> tuple[Worker, LoadReply]:
        """A live worker of that number with the candidate loaded, and what loading said."""
        worker = self._workers.get(process)
        if worker is None or not worker.alive:
            if worker is not None:
                worker.close()
            start = time.perf_counter()
            worker = self._brood.worker()
            self._workers[process] = worker
            self._replies[process] = worker.load(self.candidate)
            self.waited += time.perf_counter() - start
        return worker, self._replies[process]

    def run(self, case: Case, *, timeout: float | None = None) -> Observation:
        """One run. A candidate's fault is in the observation, never an exception."""
        worker, reply = self.loaded(case.probe.process)
        if reply.observation is not None:
            return reply.observation
        start = time.perf_counter()
        with self.zygote.room.shared():
            observation = worker.run(case.request, timeout=timeout or self.timeout)
        if _starved(observation) and worker.alive:
            # What others hold of the device is no fault of this candidate's.
            self.zygote.settle()
            with self.zygote.room.alone():
                observation = worker.run(case.request, timeout=timeout or self.timeout)
            if _starved(observation) and self.zygote.room.others:
                # What the workers of others hold between their runs is not known here.
                words = (
                    "the device's memory, which is shared with other candidates, does not suffice"
                )
                observation = Observation(status=Status.UNSUPPORTED, notes=(words,))
        elapsed = time.perf_counter() - start
        self.seconds += elapsed
        self.compiling += min(sum(s for s in observation.compiled if s > 0), elapsed)
        self.compiled += len(observation.compiled)
        self.runs += 1
        return observation

    def patiently(self, case: Case) -> Observation:
        """Once more a run that did not answer: before a hang convicts, neither the machine's own load
        nor what a first run compiles must explain it."""
        return self.run(case, timeout=PATIENT_SECONDS)


def _starved(observation: Observation) -> bool:
    """Whether the device's memory did not suffice."""
    raised = observation.raised
    return raised is not None and (
        raised.type == "OutOfMemoryError" or "CUDA out of memory" in raised.message
    )
