"""What the static runner read, as a person reads it in a terminal."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from adjudge.report.terminal import hint_lines

if TYPE_CHECKING:
    from adjudge.judge.inspection import Inspection
    from adjudge.static.build import Built
    from adjudge.static.sass import MachineCode


def inspection_report(inspection: Inspection) -> RenderableType:
    """Hints, then one table a kernel with a row for each chip."""
    parts: list[RenderableType] = [Text(inspection.name, style="bold")]
    if inspection.sizes and inspection.built:
        sizes = " ".join(f"{name}={size}" for name, size in inspection.sizes)
        parts.append(Text(f"  as launched at {sizes}", style="dim"))
    parts += [Text(f"  ! {note}", style="yellow") for note in inspection.notes]
    kernels: dict[tuple[str, str], list[Built]] = {}
    for built in inspection.built:
        kernels.setdefault(built.title, []).append(built)
    for (name, words), group in kernels.items():
        title = Text(f"  {name}", style="bold")
        title.append(f"  {words}", style="dim not bold")
        parts += [Text(), title, *_chips(group)]
    if inspection.hints:
        parts += [Text(), Text("  worth a look, though it proves nothing", style="yellow")]
        parts += hint_lines(inspection.hints, inspection.name)
    return Group(*parts)


def _chips(built: list[Built]) -> Iterable[RenderableType]:
    table = Table(box=None, header_style="dim", padding=(0, 2))
    for column in ("chip", "registers", "shared", "spills", "matrix products", "approximate"):
        table.add_column(column, overflow="fold")
    remarks: dict[str, list[str]] = {}
    for one in built:
        name = one.job.chip.name
        if one.code is None:
            remarks.setdefault(f"not compiled: {one.error}", []).append(name)
            continue
        table.add_row(*_row(name, one.code))
        for remark in one.code.remarks:
            remarks.setdefault(remark, []).append(name)
    if table.row_count:
        yield Padding(table, (0, 0, 0, 2))
    for remark, names in remarks.items():
        yield Text(f"    ! {', '.join(names)}: {remark}", style="yellow")


def _row(name: str, code: MachineCode) -> tuple[str, ...]:
    products = [
        f"{p.count} {p.instruction} ({p.operands} into {p.accumulator or 'tensor memory'})"
        for p in code.products
    ]
    functions = [f"{count} {function}" for function, count in code.approximate]
    return (
        name,
        str(code.registers),
        f"{code.shared:,} B",
        "0" if code.spilled == 0 else str(code.spills),
        "\n".join(products) or "none",
        ", ".join(functions) or "none",
    )
