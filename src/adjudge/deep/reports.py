"""Reads what compute-sanitizer prints: one report for each place in the source.

The shapes of memcheck's, initcheck's and racecheck's words are those recorded on an H200 with CUDA 13.0
(tests/deep/recorded). Lines that begin no report of these shapes are passed over.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

#: The gate that each tool's reports belong to. An uninitialised read convicts nobody by itself: what is
#: read may be thrown away. What survives in an output is seen by that gate's own probes.
GATES = {
    "memcheck": "out-of-bounds",
    "racecheck": "schedule-dependent",
    "synccheck": "schedule-dependent",
    "initcheck": "stale-output",
}

_MARK = "========= "
_PLACE = r"(?P<kernel>.+?)\+0x[0-9a-f]+(?: in (?P<file>.+):(?P<line>\d+))?"
_ACCESS = re.compile(
    r"(?P<what>(?:Invalid|Uninitialized) \S+ (?:memory )?(?:read|write|atomic) of size \d+ bytes)$"
)
_AT = re.compile(rf"at {_PLACE}$")
_THREAD = re.compile(r"by thread (\(\d+,\d+,\d+\)) in block (\(\d+,\d+,\d+\))")
_RACE = re.compile(
    rf"(?P<level>Error|Warning): Race reported between (?P<access>\w+) access at {_PLACE}$"
)
_OTHER = re.compile(rf"and (?P<access>\w+) access at {_PLACE} \[(?P<hazards>\d+) hazards?\]$")
_SUMMARY = re.compile(r"(?:ERROR|RACECHECK) SUMMARY: \d+ (?:error|hazard)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """One kind of fault at one place in the source."""

    #: "Invalid __global__ write of size 4 bytes", "Write and Read without a barrier between them".
    what: str
    #: Name of the kernel, with its parameters where it is C++.
    kernel: str
    #: Source file and line; "" and 0 where the kernel was compiled without them.
    file: str = ""
    line: int = 0
    #: One thread that did it, or where the other access of a race stands.
    detail: str = ""
    #: Threads, or hazards of a race, that were printed.
    count: int = 1
    #: A race that the tool calls a warning: none that it is sure of.
    warning: bool = False

    @property
    def where(self) -> str:
        """For a reader: "shifted, san.py:7"."""
        return f"{self.kernel}, {self.file}:{self.line}" if self.file else self.kernel


@dataclass(frozen=True, slots=True)
class Reading:
    reports: tuple[Report, ...]
    #: The tool came to its end: without its last line, no report is no acquittal.
    complete: bool


def read(text: str) -> Reading:
    """The reports in one tool's output. What the candidate prints among it cannot begin a report, unless
    it imitates the tool's mark: it can only accuse itself."""
    lines = [
        line.removeprefix(_MARK).strip() for line in text.splitlines() if line.startswith(_MARK)
    ]
    found: dict[tuple[str, str, str, int], Report] = {}
    for number, line in enumerate(lines):
        report = _access(line, lines[number + 1 : number + 4]) or _race(
            line, lines[number + 1 : number + 2]
        )
        if report is None:
            continue
        key = (report.what, report.kernel, report.file, report.line)
        before = found.get(key)
        if before is None:
            found[key] = report
        else:
            found[key] = replace(before, count=before.count + report.count)
    return Reading(tuple(found.values()), any(map(_SUMMARY.match, lines)))


def _access(line: str, after: list[str]) -> Report | None:
    head = _ACCESS.match(line)
    if head is None:
        return None
    at = _AT.match(after[0]) if after else None
    by = _THREAD.match(after[1]) if len(after) > 1 else None
    return Report(
        what=head["what"],
        kernel=at["kernel"] if at else "an unnamed kernel",
        file=(at["file"] or "") if at else "",
        line=int(at["line"] or 0) if at else 0,
        detail=f"thread {by[1]} of block {by[2]}" if by else "",
    )


def _race(line: str, after: list[str]) -> Report | None:
    head = _RACE.match(line)
    other = _OTHER.match(after[0]) if head is not None and after else None
    if head is None or other is None:
        return None
    there = f"{other['file']}:{other['line']}" if other["file"] else other["kernel"]
    return Report(
        what=f"{head['access']} and {other['access']} of shared memory without a barrier between them",
        kernel=head["kernel"],
        file=head["file"] or "",
        line=int(head["line"] or 0),
        detail=f"the other access is at {there}",
        count=int(other["hazards"]),
        warning=head["level"] == "Warning",
    )
