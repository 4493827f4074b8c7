"""adjudge explain"""

from __future__ import annotations


def explain(name: str = "", /) -> int:
    """Show a gate's contract, one of the published classes, or a contract's file; without a name, list
    gates and classes.

    Parameters
    ----------
    name
        Identifier of a gate ("stale-output") or of a class ("C-ORD-02"), or a file that ends in .toml.
    """
    from pathlib import Path

    from rich.console import Console

    from adjudge.cli import CLEAN
    from adjudge.contracts import classes
    from adjudge.contracts.file import load
    from adjudge.gates import GATES
    from adjudge.gates import gate as gate_named
    from adjudge.report.contracts import contract_list, contract_page, terms_page

    console = Console(highlight=False)
    if name.endswith(".toml"):
        console.print(terms_page(load(Path(name)).terms))
    elif name in classes.CLASSES:
        console.print(terms_page(classes.published(name).terms))
    elif name.startswith("C-"):
        from adjudge.contracts.reading import near
        from adjudge.errors import UsageError

        raise UsageError(f"there is no class named {name!r}", todo=near(name, classes.CLASSES))
    elif name:
        console.print(contract_page(gate_named(name).CONTRACT))
    else:
        console.print(contract_list([g.CONTRACT for g in GATES]))
        console.print()
        console.print(classes_list())
    return CLEAN


def classes_list() -> object:
    """The published classes, a line each."""
    from rich.table import Table
    from rich.text import Text

    from adjudge.contracts import classes

    table = Table.grid(padding=(0, 2))
    for name in classes.CLASSES:
        table.add_row(Text(name, style="bold"), classes.published(name).terms.summary)
    return table
