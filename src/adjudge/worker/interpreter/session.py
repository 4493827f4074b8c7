"""What one run asks of the interpreter, and what it saw."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from adjudge.observation import AccessFault, Race
from adjudge.task import Launch

if TYPE_CHECKING:
    from adjudge.worker.interpreter.simultaneous import Recorder

#: Faults kept of one run: the first tells the story, a storm of them costs time.
MOST_FAULTS = 50


class Unsupported(Exception):
    """The interpreter lacks what the kernel uses. Never held against the candidate."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    #: "serial", "reversed", "random:K", "simultaneous" (no instance sees what another one writes), or
    #: "none": launches are recorded and nothing runs.
    schedule: str = "serial"
    #: Index of the autotune configuration to run; -1 takes the first.
    config: int = -1
    #: What masked-off lanes without `other` hold.
    fill: str = "zero"
    #: What a load outside every tensor reads.
    guard: str = "zero"


@dataclass(slots=True)
class Log:
    launches: list[Launch] = field(default_factory=list)
    faults: list[AccessFault] = field(default_factory=list)
    races: list[Race] = field(default_factory=list)
    #: What a GPU gives here is not known: the run went on and its answer is not judged.
    unsupported: list[str] = field(default_factory=list)
    #: Seconds of each compilation; only a GPU's kernels are compiled.
    compiled: list[float] = field(default_factory=list)


@dataclass(slots=True)
class State:
    """The run in progress."""

    options: Options = field(default_factory=Options)
    log: Log = field(default_factory=Log)
    kernel: str = ""
    #: Whether the load in progress was given a value for its masked-off lanes.
    other_given: bool = False
    #: (how many configurations, which one) of the autotuner that is launching.
    tuned: tuple[int, int] = (0, -1)
    #: Told of each access where the schedule asks for it.
    recorder: Recorder | None = None


current = State()


@contextmanager
def session(options: Options) -> Iterator[Log]:
    """Kernels launched inside run under `options`; what they did is in the log."""
    current.options = options
    current.log = Log()
    try:
        yield current.log
    finally:
        current.options = Options()


def order(instances: list[tuple[int, int, int]]) -> list[tuple[int, int, int]]:
    """The program instances in the order of the schedule.

    Raises:
        Unsupported: the schedule is not one of this runner's.
    """
    name, _, key = current.options.schedule.partition(":")
    if name == "none":
        return []
    if name in ("serial", "simultaneous"):
        return instances
    if name == "reversed":
        return instances[::-1]
    if name == "random":
        shuffled = list(instances)
        random.Random(int(key)).shuffle(shuffled)
        return shuffled
    raise Unsupported(f"schedule {current.options.schedule!r}")
