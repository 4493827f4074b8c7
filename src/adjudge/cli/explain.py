"""adjudge explain"""

from __future__ import annotations


def explain(gate: str = "", /) -> int:
    """Show a gate's contract; without a name, list all gates.

    Parameters
    ----------
    gate
        Identifier of the gate.
    """
    from rich.console import Console

    from adjudge.cli import CLEAN
    from adjudge.gates import GATES
    from adjudge.gates import gate as gate_named
    from adjudge.report.contracts import contract_list, contract_page

    console = Console(highlight=False)
    if gate:
        console.print(contract_page(gate_named(gate).CONTRACT))
    else:
        console.print(contract_list([g.CONTRACT for g in GATES]))
    return CLEAN
