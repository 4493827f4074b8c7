"""What every kind of hint is made of."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator

from adjudge.static.source import Source

#: Where something was found, and what it is in words.
Found = Iterator[tuple[ast.AST, str]]
#: One reading of a source for one kind of hack.
Rule = Callable[[Source], Found]


def targets(node: ast.AST) -> list[ast.expr]:
    match node:
        case ast.Assign(targets=targets) | ast.Delete(targets=targets):
            return targets
        case ast.AugAssign(target=target) | ast.AnnAssign(target=target):
            return [target]
    return []


def is_of_the_module(source: Source, name: str) -> bool:
    """Whether the module itself assigns the name."""
    return any(
        isinstance(node, (ast.Assign, ast.AnnAssign))
        and any(isinstance(t, ast.Name) and t.id == name for t in targets(node))
        for node in source.tree.body
    )
