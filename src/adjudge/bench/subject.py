"""One program in a worker of its own, called in spans under the judge's clock."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from adjudge.bench.ring import Ring, bit_sum, new_secret, pads
from adjudge.closing import Closing
from adjudge.judge.cases import WEIGHT_SEED
from adjudge.observation import Observation, Status
from adjudge.task import Candidate
from adjudge.worker import replies
from adjudge.worker.client import Worker, Zygote
from adjudge.worker.images import Arena

#: Seconds that one part of a span may take; the first one may compile.
PART_SECONDS = 300.0
#: Most answers of a span, and leaves of an answer.
_MOST = 1 << 16


class Fell(Exception):
    """The program did not do what it was asked: no time can be told.

    Args:
        observation: what happened.
    """

    def __init__(self, name: str, observation: Observation) -> None:
        self.observation = observation
        raised = observation.raised
        words = f"{raised.type}: {raised.message[:500]}" if raised else observation.ending
        super().__init__(f"{name} {observation.status.value}: {words or 'no reason given'}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """One span, in seconds of the judge's clock."""

    count: int
    place: float
    call: float
    seal: float
    #: What the worker's own clock says of the calls.
    claimed: float
    secret: bytes
    #: For each call, a sum over the bits of each leaf of its answer.
    sums: tuple[tuple[int, ...], ...]
    #: Bytes of one answer, as the worker tells.
    nbytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Shown:
    """One answer of a span in full."""

    secret: bytes
    count: int
    number: int
    observation: Observation
    #: The answer is the one that was sealed.
    sealed: bool


class _Called(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)
    status: str
    claimed: float = Field(ge=0, le=1e6)


class _Sealed(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)
    status: str
    sums: list[list[int]] = Field(max_length=_MOST)
    nbytes: int = Field(ge=0, le=1 << 40)


class Subject(Closing):
    """A loaded program that can be asked for spans.

    Args:
        name: what messages call it.
        weights: state loaded by name, or None.
        cache: bytes of a CPU's last cache, which is emptied before the calls of a span; a GPU's own is
            known there.

    Raises:
        Fell: it does not load, or cannot be constructed.
    """

    def __init__(
        self,
        name: str,
        zygote: Zygote,
        candidate: Candidate,
        ring: Ring,
        *,
        weights: Mapping[str, npt.NDArray[Any]] | None,
        cache: int,
    ) -> None:
        self.name = name
        self.ring = ring
        self._worker: Worker = zygote.spawn()
        try:
            reply = self._worker.load(candidate)
            if reply.observation is not None:
                raise Fell(name, reply.observation)
            #: Bytes of the emptied cache, as the worker tells.
            self.cache = self._prepare(ring, weights, cache)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        self._worker.close()

    def _prepare(
        self, ring: Ring, weights: Mapping[str, npt.NDArray[Any]] | None, cache: int
    ) -> int:
        arena = Arena("zero")
        first = ring.bases[0]
        header = {
            "do": "prepare",
            "init_args": arena.tree(first.init_args, "init"),
            "init_kwargs": arena.tree(dict(first.init_kwargs), "init"),
            "seed": WEIGHT_SEED,
            "redrawn": False,
            "weights": None if weights is None else arena.weights(weights),
            "bases": [
                {"args": arena.tree(b.args, "args"), "kwargs": arena.tree(dict(b.kwargs), "kwargs")}
                for b in ring.bases
            ],
            "varied": sorted(ring.varied),
            "cache": cache,
            "fill": "zero",
            "guard": "zero",
            "displaced": False,
        }
        fd, size = arena.write()
        try:
            cache = self._part({**header, "memory": size}, (fd,)).get("cache", 0)
            return cache if isinstance(cache, int) else 0
        finally:
            os.close(fd)
            arena.close()

    def span(self, count: int) -> Span:
        """`count` calls on inputs that nobody knows before, and a seal on every answer.

        Raises:
            Fell: it raised, died, or answered with something else.
        """
        secret = new_secret()
        raw = pads(secret, count).tobytes()
        fd = os.memfd_create("adjudge-pads", os.MFD_CLOEXEC)
        try:
            os.write(fd, raw)
            clock = time.perf_counter
            begun = clock()
            self._part({"do": "place", "count": count, "memory": len(raw)}, (fd,))
            placed = clock()
            called = self._part({"do": "call"})
            done = clock()
            sealed = self._part({"do": "seal"})
            ended = clock()
        finally:
            os.close(fd)
        try:
            claimed = _Called.model_validate(called).claimed
            seal = _Sealed.model_validate(sealed)
        except ValidationError as error:
            raise self._malformed(str(error)) from error
        if len(seal.sums) != count:
            raise self._malformed(f"{len(seal.sums)} seals for {count} calls")
        return Span(
            count=count,
            place=placed - begun,
            call=done - placed,
            seal=ended - done,
            claimed=claimed,
            secret=secret,
            sums=tuple(tuple(row) for row in seal.sums),
            nbytes=seal.nbytes,
        )

    def show(self, span: Span, number: int) -> Shown:
        """An answer of the last span, in full.

        Raises:
            Fell: it is not shown.
        """
        outcome = self._worker.exchange({"do": "show", "number": number}, PART_SECONDS)
        if isinstance(outcome, Observation):
            raise Fell(self.name, outcome)
        reply, fds = outcome
        try:
            observation = replies.observation(reply, fds)
        except replies.Malformed as error:
            raise self._malformed(str(error)) from error
        finally:
            for each in fds:
                with contextlib.suppress(OSError):
                    os.close(each)
        if not observation.answered:
            raise Fell(self.name, observation)
        sums = tuple(
            bit_sum(np.ascontiguousarray(output.data).tobytes()) for output in observation.outputs
        )
        return Shown(
            secret=span.secret,
            count=span.count,
            number=number,
            observation=observation,
            sealed=sums == span.sums[number],
        )

    def _part(self, header: dict[str, Any], fds: tuple[int, ...] = ()) -> dict[str, Any]:
        outcome = self._worker.exchange(header, PART_SECONDS, fds)
        if isinstance(outcome, Observation):
            raise Fell(self.name, outcome)
        reply, given = outcome
        for each in given:
            os.close(each)
        raised = replies.raised(reply)
        if raised is not None:
            raise Fell(self.name, Observation(status=Status.RAISED, raised=raised))
        return reply

    def _malformed(self, words: str) -> Fell:
        return Fell(self.name, Observation(status=Status.MALFORMED, ending=words[:500]))
