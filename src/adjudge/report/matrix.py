"""The calibration matrix as a person reads it in a terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

if TYPE_CHECKING:
    from adjudge.judge.selfcheck import Matrix

_SIGNS = {
    "pass": ("·", "green"),
    "violation": ("✗", "bold red"),
    "refusal": ("↷", "yellow"),
    "not_applicable": ("–", "dim"),
    "inconclusive": ("?", "magenta"),
}


def matrix_report(matrix: Matrix) -> RenderableType:
    """One row an implementation, one column a gate; then precision and recall."""
    from adjudge.judge.selfcheck import wilson

    gates = [gate for gate, _ in matrix.rows[0].outcomes] if matrix.rows else []
    # Digits of a number stand below one another, so that every gate has room in 80 columns.
    table = Table(box=None, padding=(0, 1, 0, 0), header_style="dim")
    table.add_column("\nimplementation", no_wrap=True)
    for number, _ in enumerate(gates, 1):
        table.add_column("\n".join(f"{number:2d}"), min_width=1)
    for row in matrix.rows:
        cells = [Text(*_SIGNS[outcome]) for _, outcome in row.outcomes]
        table.add_row(f"{row.pair}, {row.half}", *cells)
    lines: list[RenderableType] = [table, Text()]
    lines += [Text(f"  {number:2d} {gate}", style="dim") for number, gate in enumerate(gates, 1)]
    lines.append(Text())
    named = (
        ("recall", matrix.recall, "violating halves convicted by their own gate"),
        ("precision", matrix.precision, "decided cells of conforming halves that are clean"),
    )
    for name, (hits, trials), words in named:
        low, high = wilson(hits, trials)
        lines.append(
            Text(f"{name:9s} {hits} of {trials} {words}; 95% interval {low:.1%} to {high:.1%}")
        )
    lines += [Text(f"missed: {pair}", style="bold red") for pair in matrix.missed]
    lines += [
        Text(f"false alarm: {gate} on the conforming half of {pair}", style="bold red")
        for pair, gate in matrix.false_alarms
    ]
    return Group(*lines)
