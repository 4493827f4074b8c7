"""One kernel of a candidate, cut out of its file with everything that it needs."""

from __future__ import annotations

import ast
from collections.abc import Iterable

from adjudge.static.source import Source


def standalone(source: Source, kernel: str) -> str:
    """A module's text that defines `kernel` and what it refers to, however indirectly: imports,
    constants, device functions. Autotuners and heuristics are left out; they choose what a launch has
    chosen already. Lines keep their numbers, so that what a compiler says of one is found in the file.

    Raises:
        KeyError: the file has no kernel of that name at its top level.
    """
    statements = list(source.tree.body)
    binders: dict[str, list[int]] = {}
    for number, statement in enumerate(statements):
        for name in _binds(statement):
            binders.setdefault(name, []).append(number)
    if kernel not in source.kernels or kernel not in binders:
        raise KeyError(kernel)
    needed: set[int] = set()
    waiting = {kernel}
    asked: set[str] = set()
    while waiting:
        name = waiting.pop()
        asked.add(name)
        for number in binders.get(name, ()):
            if number not in needed:
                needed.add(number)
                waiting |= _reads(_bare(statements[number], source)) - asked
    kept = [_bare(statements[number], source) for number in sorted(needed)]
    text = _in_place(kept, source.text)
    if text is None:
        return "\n\n".join(map(ast.unparse, kept)) + "\n"
    return text


def _in_place(statements: list[ast.stmt], text: str) -> str | None:
    """The file with all other lines blank; None where statements share a line."""
    lines = text.split("\n")
    wanted: set[int] = set()
    for statement in statements:
        decorators: list[ast.expr] = getattr(statement, "decorator_list", [])
        parts: list[ast.stmt | ast.expr] = [statement, *decorators]
        for node in parts:
            wanted.update(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    found = "\n".join(line if n in wanted else "" for n, line in enumerate(lines, 1))
    try:
        made = ast.parse(found).body
    except SyntaxError:
        return None
    same = len(made) == len(statements) and all(
        ast.dump(one) == ast.dump(other) for one, other in zip(made, statements, strict=True)
    )
    return found + "\n" if same else None


def _binds(statement: ast.stmt) -> Iterable[str]:
    match statement:
        case ast.Import(names=names) | ast.ImportFrom(names=names):
            return [(alias.asname or alias.name).split(".")[0] for alias in names]
        case ast.FunctionDef(name=name) | ast.ClassDef(name=name):
            return [name]
    bound = [n for n in ast.walk(statement) if isinstance(n, ast.Name)]
    return [n.id for n in bound if isinstance(n.ctx, ast.Store)]


def _reads(statement: ast.stmt) -> set[str]:
    return {n.id for n in ast.walk(statement) if isinstance(n, ast.Name)}


def _bare(statement: ast.stmt, source: Source) -> ast.stmt:
    """A kernel without the decorators that choose how it is launched."""
    if not isinstance(statement, ast.FunctionDef) or statement not in source.kernels.values():
        return statement
    kept = [d for d in statement.decorator_list if source.is_kernel_decorator(d)]
    return ast.FunctionDef(
        **{f: getattr(statement, f) for f in statement._fields if f != "decorator_list"},
        decorator_list=kept,
        lineno=statement.lineno,
        end_lineno=statement.end_lineno,
        col_offset=statement.col_offset,
    )
