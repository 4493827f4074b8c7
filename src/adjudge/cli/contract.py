"""adjudge contract"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from cyclopts import App, Parameter

contract = App(
    name="contract",
    help="Check a contract's file, or draft one from a reference.",
    help_format="plaintext",
)


@contract.command
def check(file: Path, /, *, reference: Path | None = None) -> int:
    """Say whether a contract's file is sound: its parts, its fields, and what contradicts itself.

    Parameters
    ----------
    file
        The contract, in TOML.
    reference
        Also hold it against this reference: its sizes, inputs and outputs, and how tight the tolerances
        are. The one that the file names, if not given. It is executed here.
    """
    from rich.console import Console

    from adjudge.cli import CLEAN
    from adjudge.contracts.file import load
    from adjudge.report.contracts import promise_list

    promised = load(file)
    reference = reference or promised.reference
    if reference is not None:
        from adjudge.contracts import against
        from adjudge.frontends.kernelbench import KernelBenchProgram
        from adjudge.frontends.sources import read

        against.check(promised, KernelBenchProgram(read(reference), reference.stem, str(reference)))
    console = Console(highlight=False, markup=False)
    held = f", and fits {reference}" if reference is not None else ""
    console.print(f"{file}: a sound contract{held}", soft_wrap=True)
    console.print(promise_list(promised.terms))
    return CLEAN


@contract.command
def init(
    reference: Path,
    /,
    *,
    output: Annotated[Path | None, Parameter(name=["--output", "-o"])] = None,
) -> int:
    """Draft a contract from a reference, to be read and corrected.

    Parameters
    ----------
    reference
        File that defines Model, get_inputs and get_init_inputs. It is executed here.
    output
        File to write, which must not be there yet; standard output if not given.
    """
    from adjudge.cli import CLEAN
    from adjudge.contracts.draft import draft
    from adjudge.errors import UsageError
    from adjudge.frontends.kernelbench import KernelBenchProgram
    from adjudge.frontends.sources import read

    if output is not None and output.exists():
        raise UsageError("is there already", where=str(output), todo="Name another file.")
    text = draft(KernelBenchProgram(read(reference), reference.stem, str(reference)))
    if output is None:
        print(text, end="")
        return CLEAN
    try:
        output.write_text(text, encoding="utf-8")
    except OSError as error:
        raise UsageError(f"cannot be written: {error}", where=str(output)) from error
    return CLEAN
