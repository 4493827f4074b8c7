"""Waivers: known violations that are accepted for a reason and until a day, from a file.

A waiver names a violation by its gate, signature and scope. What it accepts is still found, shown and
kept in the record; it only fails no longer. A waiver that has expired accepts nothing, one that matches
nothing where its gate has decided is a mistake in the file, and so is one for a candidate that is not
there: all end loudly.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence, Set
from dataclasses import dataclass, field, replace
from datetime import date
from pathlib import Path
from typing import Any, Literal

from adjudge.contract import Finding, Outcome
from adjudge.contracts import reading
from adjudge.contracts.promises import DESIGNED
from adjudge.contracts.reading import Text, near
from adjudge.contracts.terms import CONFIG

#: What a gate says once it has decided.
_DECIDED = {Outcome.PASS, Outcome.VIOLATION, Outcome.REFUSAL}


@dataclass(frozen=True, slots=True, kw_only=True)
class Waiver:
    """One violation that is accepted."""

    __pydantic_config__ = CONFIG

    gate: str
    """The gate that finds it."""
    signature: str
    """Its signature, as the record has it: "value", "class", "precision", "mutated", ..."""
    reason: str
    """Why it is accepted. Kept in the record of every verdict."""
    expires: date
    """The last day on which it is."""
    scope: Literal["declared", "extended"] = "extended"
    """The widest scope in which it is accepted: "declared" accepts it beyond the declared scope too."""
    candidate: str = ""
    """Name of the candidate (its file without the ending) that it is for; any if empty. The file must
    lie in the folder of this one or of the candidate that is judged, or below."""

    @property
    def name(self) -> str:
        """How messages and records name it."""
        return f"{self.gate}:{self.signature}:{self.scope}"


@dataclass(frozen=True, slots=True, kw_only=True)
class WaiverList:
    """The file."""

    __pydantic_config__ = CONFIG

    schema: Literal[1]
    """Version of this format."""
    waiver: list[Waiver] = field(default_factory=list)
    """The violations that are accepted."""


@dataclass(frozen=True, slots=True)
class Waivers:
    """One file of waivers, read on a day."""

    file: Text
    listed: tuple[Waiver, ...]
    today: date


def load(path: Path, today: date) -> Waivers:
    """The waivers in a file.

    Raises:
        UsageError: the file's mistake, with its line and what to do.
    """
    file, content = reading.parsed(path)
    listed = reading.validated(WaiverList, content, file).waiver
    for number, waiver in enumerate(listed):
        here = ("waiver", number)
        if waiver.gate not in DESIGNED:
            raise file.mistake(
                [*here, "gate"],
                f"there is no gate named {waiver.gate!r}",
                todo=near(waiver.gate, DESIGNED),
            )
        if not waiver.reason.strip():
            raise file.mistake(
                [*here, "reason"], f"{waiver.name} has no reason", todo="Say why it is accepted."
            )
        if waiver in listed[:number]:
            raise file.mistake(here, f"{waiver.name} is listed twice", todo="Remove one.")
    return Waivers(file, tuple(listed), today)


def schema() -> dict[str, Any]:
    """JSON Schema of a file of waivers."""
    from pydantic import TypeAdapter

    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        **TypeAdapter(WaiverList).json_schema(),
        "title": "Adjudge waivers",
    }


def waived(findings: tuple[Finding, ...], waivers: Waivers, candidate: str) -> tuple[Finding, ...]:
    """The findings, each violation that a waiver accepts marked with its name, day and reason."""
    return tuple(_marked(finding, waivers, candidate) for finding in findings)


def candidates_near(*folders: Path) -> frozenset[str]:
    """Names that candidates in these folders, or below them, may have: Python files without their
    ending. What is hidden is left out."""
    return frozenset(
        Path(name).stem
        for folder in folders
        for _, names in _walked(folder)
        for name in names
        if name.endswith(".py")
    )


def _walked(folder: Path) -> Iterator[tuple[str, list[str]]]:
    for at, below, names in os.walk(folder):
        below[:] = [name for name in below if not name.startswith((".", "__"))]
        yield at, names


def complaints(
    findings: Sequence[Finding],
    waivers: Waivers,
    candidate: str,
    others: Callable[[], Set[str]] | None = None,
) -> tuple[tuple[int, str], ...]:
    """(line, sentence) for each waiver for this candidate that has expired, or that matches nothing
    though its gate has decided; and for each that is for a candidate that is not there.

    Args:
        others: names of all candidates there may be, asked where a waiver is for another one than this;
            None knows of none and takes every name.
    """
    found = []
    known: Set[str] | None = None
    for number, waiver in enumerate(waivers.listed):
        line = waivers.file.lines.at(["waiver", number])
        if waiver.candidate not in ("", candidate):
            if others is not None:
                known = others() if known is None else known
                if waiver.candidate not in known:
                    found.append((line, _nobody(waiver, known, candidate)))
            continue
        decided = any(f.gate == waiver.gate and f.outcome in _DECIDED for f in findings)
        if waiver.expires < waivers.today:
            found.append((line, f"{waiver.name} expired on {waiver.expires}: it accepts nothing"))
        elif decided and not any(_accepts(waiver, f) for f in findings):
            found.append((line, f"{waiver.name} matches no violation any more: remove it"))
    return tuple(found)


def _nobody(waiver: Waiver, known: Set[str], candidate: str) -> str:
    close = near(waiver.candidate, sorted({*known, candidate}))
    hint = f" {close}" if close.startswith("Did") else ""
    return (
        f"{waiver.name} is for {waiver.candidate!r}, and there is no {waiver.candidate}.py beside or "
        f"below the file of waivers or the candidate: it accepts nothing.{hint}"
    )


def _marked(finding: Finding, waivers: Waivers, candidate: str) -> Finding:
    for waiver in waivers.listed:
        for_this = waiver.candidate in ("", candidate) and waiver.expires >= waivers.today
        if for_this and _accepts(waiver, finding):
            words = f"{waiver.name} until {waiver.expires}: {waiver.reason}"
            return replace(finding, waived=words)
    return finding


def _accepts(waiver: Waiver, finding: Finding) -> bool:
    violation = finding.violation
    return (
        violation is not None
        and finding.gate == waiver.gate
        and violation.signature == waiver.signature
        and finding.scope.value in ("extended", waiver.scope)
    )
