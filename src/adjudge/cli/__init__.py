"""The command line. One file a command; each imports what it needs when it runs.

Exit codes: 0 clean, 1 a violation, 2 the user's mistake, 3 our own fault, or nothing could be judged.
"""

from __future__ import annotations

import sys
from typing import NoReturn

CLEAN, VIOLATION, MISTAKE, FAULT = 0, 1, 2, 3


def main() -> NoReturn:
    """Entry point of `adjudge`."""
    sys.exit(run(sys.argv[1:]))


def run(arguments: list[str]) -> int:
    """Runs one command line and returns its exit code."""
    import os

    from cyclopts import CycloptsError
    from rich.console import Console

    from adjudge.cli.app import app
    from adjudge.errors import AdjudgeError, UsageError

    errors = Console(stderr=True, highlight=False)
    try:
        code = app(arguments, exit_on_error=False, print_error=True, result_action="return_value")
    except CycloptsError:
        return MISTAKE
    except UsageError as error:
        errors.print(f"[bold red]error[/] {_escaped(error)}", soft_wrap=True)
        return MISTAKE
    except KeyboardInterrupt:
        errors.print("interrupted")
        return 130
    except BrokenPipeError:
        # The reader of our output has gone; what is left to flush would raise once more.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return CLEAN
    except AdjudgeError as error:
        errors.print(f"[bold magenta]our fault[/] {_escaped(error)}", soft_wrap=True)
        return FAULT
    except Exception:
        errors.print("[bold magenta]our fault[/] an unexpected error; please report it with this:")
        errors.print_exception()
        return FAULT
    return code if isinstance(code, int) else CLEAN


def _escaped(error: Exception) -> str:
    """The message, with what a terminal would take for a command (in a name from a file) spelled out."""
    from rich.markup import escape

    return escape(
        "".join(x if x.isprintable() or x == "\n" else ascii(x)[1:-1] for x in str(error))
    )
