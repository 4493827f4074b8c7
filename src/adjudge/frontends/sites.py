"""Integer literals that feed a reference's input functions, and the source with some replaced."""

from __future__ import annotations

import ast
import copy
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass

FUNCTIONS = ("get_inputs", "get_init_inputs")


@dataclass(frozen=True, slots=True)
class Site:
    """One integer literal, by its place in the source."""

    line: int
    column: int
    value: int
    #: Name of the module constant it belongs to, or of the function it stands in.
    owner: str
    #: True if it is the whole value of a module constant.
    named: bool


def sites(tree: ast.Module) -> list[Site]:
    """Literals in module constants and in the two input functions, in source order."""
    found: list[Site] = []
    for node in tree.body:
        if isinstance(node, ast.Assign) and len(node.targets) == 1:
            target = node.targets[0]
            owner = target.id if isinstance(target, ast.Name) else ""
            for constant in _integers(node.value):
                found.append(_site(constant, owner, constant is node.value))
        elif isinstance(node, ast.FunctionDef) and node.name in FUNCTIONS:
            found += [_site(c, node.name, False) for c in _integers(node)]
    return found


def _integers(node: ast.AST) -> Iterator[ast.Constant]:
    for child in ast.walk(node):
        if isinstance(child, ast.Constant) and type(child.value) is int and child.value > 0:
            yield child


def _site(node: ast.Constant, owner: str, named: bool) -> Site:
    assert type(node.value) is int
    return Site(node.lineno, node.col_offset, node.value, owner, named)


def replaced(tree: ast.Module, values: Mapping[Site, int]) -> ast.Module:
    """The tree with the literals at those sites changed; statements without any are shared with it."""
    wanted = {(site.line, site.column): value for site, value in values.items()}
    lines = {line for line, _ in wanted}
    body = [_changed(node, wanted) if _spans(node, lines) else node for node in tree.body]
    return ast.Module(body=body, type_ignores=tree.type_ignores)


def _spans(node: ast.stmt, lines: Collection[int]) -> bool:
    # A function begins at its decorators.
    first = min([node.lineno, *(d.lineno for d in getattr(node, "decorator_list", []))])
    last = node.end_lineno or node.lineno
    return any(first <= line <= last for line in lines)


def _changed(node: ast.stmt, wanted: Mapping[tuple[int, int], int]) -> ast.stmt:
    changed = copy.deepcopy(node)
    for part in ast.walk(changed):
        if isinstance(part, ast.Constant) and type(part.value) is int:
            part.value = wanted.get((part.lineno, part.col_offset), part.value)
    return changed


class OnTheJudge(ast.NodeTransformer):
    """Device strings that name a GPU name the CPU instead: the reference runs where the judge is."""

    def visit_Constant(self, node: ast.Constant) -> ast.Constant:
        if isinstance(node.value, str) and node.value.split(":")[0] == "cuda":
            node.value = "cpu"
        return node
