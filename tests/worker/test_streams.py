"""Work that the caller's stream does not wait for, on streams that are played."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import dataclass, field

import pytest
import torch

from adjudge.worker.streams import Streams, named_in


@dataclass(eq=False)
class Played:
    """A stream: work is queued, and done when someone waits."""

    work: list[Callable[[], object]] = field(default_factory=list)

    def synchronize(self) -> None:
        while self.work:
            self.work.pop(0)()


@pytest.fixture
def played(monkeypatch: pytest.MonkeyPatch) -> list[Played]:
    """The caller's stream, and torch's own after it as they are handed out."""
    every = [Played()]

    def handed_out(device: torch.device, priority: int = 0) -> Played:
        every.append(Played())
        return every[-1]

    @contextlib.contextmanager
    def on(stream: Played):  # type: ignore[no-untyped-def]
        current.append(stream)
        yield
        current.pop()

    current = [every[0]]
    monkeypatch.setattr(torch.cuda, "Stream", handed_out)
    monkeypatch.setattr(torch.cuda, "current_stream", lambda device=None: current[-1])
    monkeypatch.setattr(torch.cuda, "stream", on)
    monkeypatch.setattr(torch.cuda, "_sleep", lambda cycles: current[-1].work.append(lambda: None))
    monkeypatch.setattr(
        torch.cuda, "synchronize", lambda device=None: [s.synchronize() for s in every]
    )
    return every


@pytest.mark.parametrize(("number", "late"), [(0, False), (1, True), (-1, True)])
def test_what_is_written_after_the_callers_stream_is_done_is_late(
    number: int, late: bool, played: list[Played]
) -> None:
    streams = Streams(torch.device("cuda", 0))
    streams.hold()
    assert [len(stream.work) for stream in played] == [0] + [1] * (len(played) - 1)
    out = torch.zeros(4)
    played[number].work.append(lambda: out.fill_(1))
    assert streams.late([torch.ones(2), out]) == late
    assert out.sum() == 4


def test_a_candidate_that_names_no_stream_has_none() -> None:
    assert named_in("s = torch.cuda.Stream()")
    assert named_in("at::cuda::getStreamFromPool(false)")
    assert named_in("s = getattr(torch.cuda, 'S' + 'tr' + 'eam')()")
    assert not named_in("return x * 2")
