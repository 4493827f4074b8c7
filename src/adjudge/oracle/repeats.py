"""What contractions gave on operands that no error has touched yet: the same in every run with errors.

A run draws its errors behind each operation, so that the first contractions of a reference read the same
operands every time: its inputs and its weights. They are most of what a convolution's run takes.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch

#: Elements held of one reference, operands and results: half a GiB. A run with errors of a reference
#: that is never longer than that has several tensors of the same size at a time.
MOST = 1 << 26

Part = Callable[[], torch.Tensor]


@dataclass(slots=True)
class _Held:
    what: Any
    operands: tuple[torch.Tensor, ...]
    #: Of the operands' content: it changes where they are written in place.
    versions: tuple[int, ...]
    parts: dict[str, torch.Tensor] = field(default_factory=dict)

    @property
    def elements(self) -> int:
        return sum(t.numel() for t in (*self.operands, *self.parts.values()))

    def is_of(self, what: Any, operands: tuple[torch.Tensor, ...]) -> bool:
        """Whether it is the same operation on equal operands; NaN equals nothing."""
        return (
            self.what == what
            and self.versions == tuple(t._version for t in self.operands)
            and all(map(torch.equal, self.operands, operands))
        )


class Repeats:
    """The contractions of one reference, by their number in a run."""

    def __init__(self, owner: Any) -> None:
        self._owner = weakref.ref(owner)
        #: None where the operands were seen to differ from run to run.
        self._held: dict[int, _Held | None] = {}
        self._elements = 0

    def is_of(self, owner: Any) -> bool:
        return self._owner() is owner

    def at(self, turn: int, what: Any, operands: tuple[torch.Tensor, ...]) -> _Held | None:
        """What is held of the `turn`-th contraction of a run; None where nothing can be.

        Args:
            what: the operation and its settings.
        """
        if turn not in self._held:
            new = _Held(what, operands, tuple(t._version for t in operands))
            self._held[turn] = new if self._takes(new.elements) else None
            return self._held[turn]
        held = self._held[turn]
        if held is None or held.is_of(what, operands):
            return held
        self._elements -= held.elements
        self._held[turn] = None
        return None

    def part(self, held: _Held, name: str, part: Part) -> torch.Tensor:
        """A result of what is held, made once. Not to be written to."""
        found = held.parts.get(name)
        if found is None:
            found = part()
            if self._takes(found.numel()):
                held.parts[name] = found
        return found

    def _takes(self, elements: int) -> bool:
        fits = self._elements + elements <= MOST
        self._elements += elements if fits else 0
        return fits


_current: Repeats | None = None


def repeats(owner: Any) -> Repeats:
    """Those of `owner`; those of any other are forgotten."""
    global _current
    if _current is None or not _current.is_of(owner):
        _current = Repeats(owner)
    return _current
