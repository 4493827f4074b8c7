"""Contracts as a person reads them in a terminal."""

from __future__ import annotations

from collections.abc import Iterable

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from adjudge.contract import PARTS, Contract


def contract_list(contracts: Iterable[Contract]) -> Table:
    table = Table.grid(padding=(0, 2))
    for contract in contracts:
        table.add_row(Text(contract.identifier, style="bold"), contract.summary)
    return table


def contract_page(contract: Contract) -> RenderableType:
    """The eight parts, then how violations are established and what others call the gate."""
    table = Table.grid(padding=(0, 2))
    table.add_column(style="dim", no_wrap=True)
    table.add_column(overflow="fold")
    for part in PARTS[1:]:
        table.add_row(part, getattr(contract, part))
    table.add_row("established", contract.kind.value)
    if contract.codes:
        table.add_row("also known as", ", ".join(contract.codes))
    title = Text(contract.identifier, style="bold")
    title.append(f"  a kernel that {contract.summary}", style="not bold")
    return Group(title, Text(), table)
