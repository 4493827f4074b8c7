"""A digest of everything that decides: records made under other gates are known to be stale."""

from __future__ import annotations

import ast
import hashlib
from functools import cache
from importlib import resources
from typing import Any

_PACKAGES = ("gates", "oracle", "inputs")
#: Parts of a syntax tree that say nothing, or that not every version of Python has.
_SILENT = {"ctx", "kind", "type_comment", "type_params", "type_ignores"}


@cache
def gates_digest() -> str:
    """SHA-256 over the gates, the oracle and the inputs as programs: comments, docstrings and layout
    do not count."""
    state = hashlib.sha256()
    for package in _PACKAGES:
        root = resources.files("adjudge") / package
        for entry in sorted(root.iterdir(), key=lambda item: item.name):
            if entry.name.endswith(".py"):
                tree = ast.parse(entry.read_text(encoding="utf-8"))
                state.update(f"{entry.name}={_words(tree)}\n".encode())
    return state.hexdigest()


def _words(node: Any) -> str:
    """The tree in words that are the same on every version of Python."""
    if isinstance(node, ast.AST):
        fields = [
            f"{name}={_words(value)}"
            for name, value in ast.iter_fields(node)
            if name not in _SILENT and value not in (None, [])
        ]
        return f"{type(node).__name__}({','.join(fields)})"
    if isinstance(node, list):
        return f"[{','.join(_words(item) for item in node if not _is_docstring(item))}]"
    return repr(node)


def _is_docstring(node: Any) -> bool:
    return (
        isinstance(node, ast.Expr)
        and isinstance(node.value, ast.Constant)
        and isinstance(node.value.value, str)
    )
