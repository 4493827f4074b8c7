"""Verdicts over several processes, each with a zygote of its own."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any

from adjudge.judge.pool import Pool
from adjudge.worker.client import Zygote

_zygote: Zygote | None = None


def zygote() -> Zygote:
    """The one of this process."""
    assert _zygote is not None
    return _zygote


def _start(how: dict[str, Any]) -> None:
    global _zygote
    _zygote = Zygote.start(**how)


def _pooled(work: Callable[[Any], dict[str, Any]], job: Any, held: Zygote) -> dict[str, Any]:
    global _zygote
    _zygote = held
    return work(job)


def answers(
    work: Callable[[Any], dict[str, Any]], jobs: Iterable[Any], processes: int, **how: Any
) -> Iterator[dict[str, Any]]:
    """`work` of each job, in the order in which they are done.

    Args:
        processes: with one, the jobs are done here, in their own order. On a GPU they share a zygote,
            and are as many as its memory holds.
        how: what `Zygote.start` takes.
    """
    if how.get("runner") == "cuda":
        with Pool(judges=processes, **how) as pool:
            yield from pool.answers(partial(_pooled, work), jobs)
        return
    if processes == 1:
        _start(how)
        with zygote():
            yield from map(work, jobs)
        return
    context = multiprocessing.get_context("spawn")
    with context.Pool(processes, _start, (how,)) as pool:
        yield from pool.imap_unordered(work, jobs, chunksize=1)
