"""Points with one size past 2**16, where counters of 16 bits and the second axis of a grid end.

A kernel may be right for eight rows and wrong for 65,537, however narrow they are. Such a point is asked
last and only where it is affordable: what the reference and the candidate take there is foreseen from
small runs. One too dear says nothing about the candidate.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Collection
from dataclasses import dataclass
from math import log2, prod

from adjudge.gates.reading import State, state
from adjudge.judge.cases import CaseBuilder
from adjudge.judge.docket import Docket
from adjudge.observation import Observation
from adjudge.oracle import Oracle
from adjudge.probe import Probe, sizes_of
from adjudge.program import OutsideDomain
from adjudge.task import Symbol, Task, merged

#: The size asked: the first odd one past 2**16, and past CUDA's 65,535 blocks along a grid's y and z.
SIZE = (1 << 16) + 1
#: Sizes from whose costs those at SIZE are foreseen.
PILOTS = (64, 512)
#: Sizes at which the reference's work is counted, in turn.
RISING = (2, *PILOTS)
#: Other symbols are made as small as these, the widest affordable first; one that moves an argument of
#: the constructor stays at the base.
_WIDTHS = (8, 4, 2, 1)
#: What the reference may do there: operations (a loop over rows makes one of each row), and elements
#: that they read, over which the oracle's evaluations take about a second.
OPERATIONS, ELEMENTS = 2_000, 1 << 23
#: Bytes that the candidate may allocate there.
BYTES = 1 << 30
#: Points asked of one task, the first symbols' first.
MOST = 2
#: Program instances that the candidate may launch there in the interpreter, unless more are allowed;
#: each takes 0.2 to 3 ms. A kernel of one instance a row takes up to three minutes.
INSTANCES = 3_000
#: Seconds that a run may take for each of them, as foreseen: loops within one instance take time too.
EACH = 0.005
#: A run may take so many times the seconds foreseen, and at least so many.
SLACK, LEAST = 4.0, 10.0


@dataclass(frozen=True, slots=True)
class Asked:
    #: What was asked and what was not, in words.
    words: tuple[str, ...] = ()
    #: The runs that were made.
    probes: tuple[Probe, ...] = ()


def ask(docket: Docket, *, instances: int) -> Asked:
    """Runs the candidate at the points that are affordable.

    Args:
        instances: that one run may launch in the interpreter.
    """
    task = docket.scene.task
    if state(docket, docket.scene.ordinary) is not State.CLEAN or _wrong_already(docket):
        return Asked()
    native = docket.scene.native
    at_native = native is not None and state(docket, native) is State.CLEAN
    counting = [s for s in task.symbols if _counts_rows(task, s)]
    wanted = [s for s in counting if not (at_native and s.native >= SIZE)]
    before = set(docket.observations)
    words = tuple(f"{s.name} = {SIZE:,} {_asked(docket, s, instances)}" for s in wanted[:MOST])
    return Asked(words, tuple(p for p in docket.observations if p not in before))


def upheld(docket: Docket, asked: Asked) -> tuple[str, ...]:
    """The words on points that were asked before all else was known; their runs are taken back where
    `ask` would now make none."""
    if not _wrong_already(docket, asked.probes):
        return asked.words
    docket.drop(asked.probes)
    return ()


def _wrong_already(docket: Docket, but: Collection[Probe] = ()) -> bool:
    """Whether values alone, at whatever sizes, show a fault: among so many more it would show again, and
    be taken for one of size."""
    return any(
        state(docket, probe) is State.BROKEN
        for probe in docket.observations
        if probe not in but and set(probe.factors) <= {"distribution"}
    )


def _asked(docket: Docket, symbol: Symbol, instances: int) -> str:
    """Whether the point was run, in words."""
    if _left(docket) <= 0:
        return "was not asked: the time allowed was spent before"
    others = _affordable(docket.builder, symbol.name, dict(docket.scene.discovery.base))
    if others is None:
        return "was not asked: the reference does too much there"
    sizes = [sizes_of(merged(others, **{symbol.name: n})) for n in (*PILOTS, SIZE)]
    *pilots, probe = (Probe(sizes=point) for point in sizes)
    # They tell what a run costs, and are no evidence: errors that grow with one size have owners where
    # the other sizes are the ordinary ones.
    if docket.scene.runner == "interpret":
        try:
            runs = [docket.runner.run(docket.builder.build(pilot)) for pilot in pilots]
        except OutsideDomain as outside:
            return f"was not asked: outside the reference's domain: {outside}"
        if not all(run.answered for run in runs):
            return f"was not asked: {PILOTS[0]} or {PILOTS[1]} gave no answer"
        why = _too_dear(runs, instances, _left(docket))
        if why:
            return f"was not asked: {why}"
        docket.limits[probe] = max(SLACK * _seconds(runs), LEAST)
    docket.run([probe], limited=False)
    skipped = docket.skipped.get(probe, "")
    return f"gave no verdict: {skipped}" if skipped else "was asked"


def _left(docket: Docket) -> float:
    """Seconds until the docket's deadline."""
    return float("inf") if docket.deadline is None else docket.deadline - time.monotonic()


def _too_dear(pilots: list[Observation], instances: int, left: float) -> str:
    """Why a candidate that ran so at PILOTS is not asked at SIZE; "" if it can be."""
    launched = _on_line(*(sum(prod(launch.grid) for launch in run.launches) for run in pilots))
    if launched > instances:
        return (
            f"it would launch {launched:,.0f} program instances, of {instances:,} allowed (large)"
        )
    if _at_size(*(run.peak_bytes for run in pilots)) > BYTES:
        return f"it would allocate more than {BYTES:,} bytes"
    seconds, allowed = _seconds(pilots), min(instances * EACH, left)
    if seconds > allowed:
        return f"it would take about {seconds:.1f} s, of {allowed:.1f} allowed"
    return ""


def _seconds(pilots: list[Observation]) -> float:
    """What a run at SIZE takes. One that grows faster than a straight line runs into its limit."""
    return _on_line(*(run.seconds for run in pilots))


def _on_line(small: float, large: float) -> float:
    """A cost at SIZE on the straight line through those at PILOTS: what a call costs by itself does not
    grow."""
    each = max(large - small, 0.0) / (PILOTS[1] - PILOTS[0])
    return large + each * (SIZE - PILOTS[1])


def _at_size(small: float, large: float) -> float:
    """A count at SIZE from those at PILOTS, as a power of the size.

    What grows like a + b * n**2 is taken for less than it is by at most the factor by which its power
    still rises; the limits leave room for that.
    """
    if small <= 0 or large <= 0:
        return large * SIZE / PILOTS[1]
    power = max(log2(large / small) / log2(PILOTS[1] / PILOTS[0]), 0.0)
    return float(large * (SIZE / PILOTS[1]) ** power)


def _counts_rows(task: Task, symbol: Symbol) -> bool:
    """Whether it is an axis of some input, and not the last one: what is reduced or held in one block is
    the last as a rule, and blocks so wide are no kernel's scope."""
    ranks = {spec.name: len(spec.shape) for spec in task.inputs}
    rows = any(axis < ranks.get(name, 0) - 1 for name, axis in symbol.axes)
    return rows and not symbol.init_args


def _affordable(builder: CaseBuilder, name: str, base: dict[str, int]) -> dict[str, int] | None:
    """The other symbols' sizes with which the reference's work at SIZE is affordable, or None."""
    fixed = {s.name for s in builder.program.task.symbols if s.init_args}
    tried: list[dict[str, int]] = []
    for width in _WIDTHS:
        others = {n: size if n in fixed else min(size, width) for n, size in base.items()}
        if others in tried:
            continue
        tried.append(others)
        with contextlib.suppress(OutsideDomain, _TooMuch):
            small, large = [_light(builder, merged(others, **{name: n})) for n in RISING][-2:]
            if _within(*(_at_size(a, b) for a, b in zip(small, large, strict=True))):
                return others
    return None


class _TooMuch(Exception):
    """The reference does more at a small size already than it may at SIZE."""


def _light(builder: CaseBuilder, sizes: dict[str, int]) -> tuple[int, int]:
    """`_work`, asked from the smallest size up, so that no reference is run where it is dear.

    Raises:
        OutsideDomain: it does not answer.
        _TooMuch: the work is beyond the limits.
    """
    found = _work(builder, sizes)
    if not _within(*found):
        raise _TooMuch
    return found


def _within(operations: float, elements: float) -> bool:
    return operations <= OPERATIONS and elements <= ELEMENTS


def _work(builder: CaseBuilder, sizes: dict[str, int]) -> tuple[int, int]:
    """Primitive operations of the reference at a point, and the elements that they read and it returns.

    Raises:
        OutsideDomain: it does not answer.
    """
    probe = Probe(sizes=sizes_of(sizes))
    arguments = builder.arguments(probe)
    oracle = Oracle(builder.make(probe, arguments), arguments, generic=True)
    operations, read = oracle.work
    return operations, read + sum(leaf.data.size for leaf in oracle.exact)
