"""adjudge task"""

from __future__ import annotations

from pathlib import Path


def task(reference: Path, /) -> int:
    """Show what a reference asks for: inputs, dimension symbols, and what is doubtful about it.

    Parameters
    ----------
    reference
        File that defines Model, get_inputs and get_init_inputs. It is executed here.
    """
    from rich.console import Console

    from adjudge.cli import CLEAN, common

    with common.progress(Console(stderr=True)) as advance:
        advance("loading torch", 0, 0)
        from adjudge.frontends.examine import examine
        from adjudge.frontends.kernelbench import KernelBenchProgram
        from adjudge.frontends.sources import read
        from adjudge.symbols import shrunken

        advance("reading the reference", 0, 0)
        program = KernelBenchProgram(read(reference), reference.stem, str(reference))
        doubts = (*program.task.warnings, *examine(program))
        small = shrunken(program)
    from adjudge.report.tasks import task_report

    Console(highlight=False).print(task_report(program.task, small, doubts))
    return CLEAN
