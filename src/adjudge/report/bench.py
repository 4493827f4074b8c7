"""A benchmark as a person reads it, below its verdict."""

from __future__ import annotations

from collections.abc import Iterator

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from adjudge.bench.belief import spoken
from adjudge.bench.record import Benchmark, Timing


def benchmark_report(found: Benchmark) -> RenderableType:
    """Times, what they are held against, and why none is given."""
    parts: list[RenderableType] = []
    if found.candidate is None:
        parts.append(Text(f"{found.name}  NO SPEED IS GIVEN", style="bold magenta"))
        parts += [Text(f"  {words}", style="red") for words in found.refused]
    else:
        head = Text(found.name, style="bold")
        head.append(f"  {spoken(found.candidate.seconds)} a call")
        if found.convicted:
            gates = ", ".join(f.gate for f in found.verdict.violations)
            head.append(f"  BREAKS ITS CONTRACT: {gates}", style="bold red")
        elif found.slower:
            head.append("  correct but slower than the reference", style="bold yellow")
        parts.append(head)
    table = Table.grid(padding=(0, 2))
    for _ in range(4):
        table.add_column()
    for timing in (found.candidate, found.eager, found.compiled):
        if timing is not None:
            table.add_row(*_row(timing, found))
    parts.append(Padding(table, (0, 0, 0, 2)))
    parts += [Text(f"  {words}", style="dim") for words in _facts(found)]
    parts += [Text(f"  ! {words}", style="yellow") for words in found.notes]
    return Group(*parts)


def _row(timing: Timing, found: Benchmark) -> tuple[str, ...]:
    ratio = found.against(timing) if timing is not found.candidate else None
    return (
        timing.name,
        spoken(timing.seconds),
        f"{spoken(timing.low)} to {spoken(timing.high)}",
        f"{ratio:.2f} times as fast as this" if ratio is not None else "",
    )


def _facts(found: Benchmark) -> Iterator[str]:
    if found.fraction is not None and found.roofline is not None:
        yield (
            f"{100 * found.fraction:.0f} % of the roofline "
            f"({found.roofline.nbytes:,} bytes, {found.roofline.operations:,} operations)"
        )
    if found.calls:
        yield (
            f"{found.checked} answers of {found.calls:,} timed calls judged; at most "
            f"{spoken(found.hidden)} of a call could have been done outside of what was timed"
        )
