"""Reading source files, with messages a person can act on."""

from __future__ import annotations

import ast
from pathlib import Path

from adjudge.errors import UsageError


def read(path: Path) -> str:
    """The text of a source file.

    Raises:
        UsageError: it is missing, a folder, or not text.
    """
    try:
        return path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise UsageError("there is no such file", where=str(path)) from None
    except IsADirectoryError:
        raise UsageError("this is a folder, not a file", where=str(path)) from None
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"cannot be read as text: {error}", where=str(path)) from error


def parsed(source: str, where: str) -> ast.Module:
    """The syntax tree.

    Raises:
        UsageError: it does not parse; the message names the line.
    """
    try:
        return ast.parse(source)
    except (SyntaxError, ValueError) as error:
        line = getattr(error, "lineno", None)
        message = getattr(error, "msg", None) or str(error)
        at = f"{where}:{line}" if line else where
        raise UsageError(f"does not parse: {message}", where=at) from None


def language(source: str) -> str:
    """What the source seems to be written in: "triton", "cuda" or "torch"."""
    if "triton" in source:
        return "triton"
    return "cuda" if "load_inline" in source or "cpp_extension" in source else "torch"
