"""adjudge doctor"""

from __future__ import annotations


def doctor() -> int:
    """Say what this machine can judge, and what is missing."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    from adjudge.cli import CLEAN, FAULT
    from adjudge.judge.doctor import examine

    table = Table.grid(padding=(0, 2))
    fine = True
    for check in examine():
        fine = fine and (check.ok or not check.needed)
        mark = Text("✓", style="green") if check.ok else Text("✗", style="bold red")
        if not check.ok and not check.needed:
            mark = Text("–", style="yellow")
        table.add_row(mark, check.name, Text(check.words))
    Console(highlight=False).print(table)
    return CLEAN if fine else FAULT
