"""The ways Adjudge itself can fail.

A fault of the candidate is never an exception here: it is an `Observation` or a `Finding`.
"""

from __future__ import annotations


class AdjudgeError(Exception):
    """Base of every error raised on purpose by this package."""


class UsageError(AdjudgeError):
    """The user's mistake: what is wrong, where, and what to do. The command line exits with 2.

    Shown without a traceback, so the message must stand alone.
    """

    def __init__(self, what: str, *, where: str = "", todo: str = "") -> None:
        self.what = what
        self.where = where
        self.todo = todo
        parts = [f"{where}: {what}" if where else what]
        if todo:
            parts.append(todo)
        super().__init__("\n".join(parts))


class NestedVerdict(AdjudgeError):
    """`adjudge.verify` was called by a candidate's file while it was being loaded."""


class HarnessError(AdjudgeError):
    """Our own fault, or the machine's. The command line exits with 3."""
