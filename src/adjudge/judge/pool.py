"""Many verdicts at once on one machine.

Judges are forks of one process and share its zygote. While the workers of some compile on their cores,
those of others have the device; workers of the next candidate open their contexts meanwhile.
"""

from __future__ import annotations

import importlib
import multiprocessing
import os
import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from multiprocessing.util import Finalize
from typing import Any, TypeVar

import torch

from adjudge.closing import Closing
from adjudge.judge.digest import gates_digest
from adjudge.worker.client import Zygote
from adjudge.worker.launch import Launch, hide_device

Item = TypeVar("Item")
Result = TypeVar("Result")

#: Device memory that one worker is reckoned at: a context and a kernel's tensors took 0.7 GiB each where
#: all of 44 were there; the device is never full of the largest.
WORKER_BYTES = 3 << 29

_zygote: Zygote | None = None


class Pool(Closing):
    """A number of judges, each at one candidate.

    Args:
        judges: how many; fewer where the device's memory does not hold their workers.
        lanes: as of `verify.Options`; the pool's work passes it on.
        how: what `Launch` takes.

    Raises:
        HarnessError: the zygote did not come up.
        UsageError: the machine lacks what the runner needs.
    """

    def __init__(self, *, judges: int, lanes: int = 1, **how: Any) -> None:
        self._folder = tempfile.mkdtemp(prefix="adjudge-pool-")
        launch = Launch(share=1 / judges, **how)
        hide_device()
        # While that boots: what the first verdicts of each judge would import, for seconds, where the
        # reference is tried on the meta device.
        importlib.import_module("torch._dynamo")
        gates_digest()
        self._zygote = Zygote(launch)
        torch.set_num_threads(1)
        if self._zygote.memory:
            # Workers of two candidates at a time: one is judged, the next one's are begun.
            each = 2 * (lanes + 1) * WORKER_BYTES
            judges = max(1, min(judges, self._zygote.memory // each))
        self.judges = judges
        ahead = lanes if self._zygote.model else 0
        room = os.path.join(self._folder, "room")
        twins = [self._zygote.twin(ahead=ahead, room=room) for _ in range(judges)]
        context = multiprocessing.get_context("fork")
        self._executor = ProcessPoolExecutor(
            judges, mp_context=context, initializer=_enter, initargs=(twins, context.Value("i", 0))
        )

    def answers(
        self, work: Callable[[Item, Zygote], Result], items: Iterable[Item]
    ) -> Iterator[Result]:
        """`work` of each item, in the order in which they are done."""
        waiting = [self._executor.submit(_work, work, item) for item in items]
        for done in as_completed(waiting):
            yield done.result()

    def close(self) -> None:
        self._executor.shutdown(cancel_futures=True)
        self._zygote.close()
        shutil.rmtree(self._folder, ignore_errors=True)


def _enter(twins: list[Zygote], taken: Any) -> None:
    """In a judge: takes a zygote's channel that no other one has."""
    global _zygote
    with taken.get_lock():
        _zygote = twins[taken.value]
        taken.value += 1
    # Ends the workers begun for a candidate that never came.
    Finalize(None, _zygote.close, exitpriority=0)


def _work(work: Callable[[Any, Zygote], Any], item: Any) -> Any:
    assert _zygote is not None
    return work(item, _zygote)
