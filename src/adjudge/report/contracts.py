"""Contracts as a person reads them in a terminal."""

from __future__ import annotations

from collections.abc import Iterable

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from adjudge.contract import PARTS, Contract
from adjudge.contracts.promises import promises
from adjudge.contracts.terms import Terms


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


def promise_list(terms: Terms) -> RenderableType:
    """What the file declares beyond its words, and what comes of each declaration here."""
    table = Table(box=None, header_style="dim", padding=(0, 2))
    for title in ("declared", "", "judged"):
        table.add_column(title, overflow="fold")
    for promise in promises(terms):
        judged = Text(promise.judged)
        if promise.waits:
            judged.append("; " if promise.judged else "")
            judged.append(f"declared, and judged by no gate here yet: {promise.waits}", "yellow")
        if promise.reason:
            judged.append(f" ({promise.reason})", "dim")
        table.add_row(promise.name, Text(promise.words), judged)
    return table if table.row_count else Text("nothing is declared beyond the words")


def terms_page(terms: Terms) -> RenderableType:
    """A contract's file as a page: the eight parts in words, then what is declared."""
    table = Table.grid(padding=(0, 2))
    table.add_column(style="dim", no_wrap=True)
    table.add_column(overflow="fold")
    for part in PARTS[1:]:
        table.add_row(part, Text(getattr(terms, part).words))
    title = Text(terms.identifier, style="bold")
    title.append(f"  {terms.summary}", style="not bold")
    return Group(title, Text(), table, Text(), promise_list(terms))
