"""Python's own words on tensors: `and`, `or`, `not`, `min`, `max`.

Triton's compiler gives them a meaning element by element. Its interpreter leaves them to Python, to
which every block is true: `mask and other` is `other` there, `min(x, 3.0)` is 3.0 whatever x is, and
nothing says so.
"""

from __future__ import annotations

import ast
import builtins
from collections.abc import Callable
from typing import Any

import triton.language as tl
from triton.runtime import interpreter as stock

_AND, _OR, _NOT = "_adjudge_and", "_adjudge_or", "_adjudge_not"


def install() -> None:
    stock.FunctionRewriter.ast_transformer = _Rewriter()
    # The interpreter lays its own names under those of the module of each kernel that it rewrites.
    for name, meaning in {_AND: _and, _OR: _or, _NOT: _not, "min": _min, "max": _max}.items():
        setattr(stock, name, meaning)


class _Rewriter(stock.ASTTransformer):  # type: ignore[misc]
    """The stock rewriting of assignments, and of the operators."""

    def visit_Assign(self, node: ast.Assign) -> Any:  # noqa: N802
        node.value = self.visit(node.value)
        return super().visit_Assign(node)

    def visit_BoolOp(self, node: ast.BoolOp) -> ast.expr:  # noqa: N802
        self.generic_visit(node)
        if any(isinstance(n, (ast.NamedExpr, ast.Await, ast.Yield)) for n in ast.walk(node)):
            return node
        # What is on the right is not evaluated where a Python value on the left decides.
        later: list[ast.expr] = [ast.Lambda(args=_NO_ARGUMENTS, body=v) for v in node.values]
        name = _AND if isinstance(node.op, ast.And) else _OR
        return ast.Call(func=ast.Name(id=name, ctx=ast.Load()), args=later, keywords=[])

    def visit_UnaryOp(self, node: ast.UnaryOp) -> ast.expr:  # noqa: N802
        self.generic_visit(node)
        if not isinstance(node.op, ast.Not):
            return node
        name = ast.Name(id=_NOT, ctx=ast.Load())
        return ast.Call(func=name, args=[node.operand], keywords=[])


_NO_ARGUMENTS = ast.arguments(posonlyargs=[], args=[], kwonlyargs=[], kw_defaults=[], defaults=[])


def _is_truth(value: Any) -> bool:
    """Whether a value is a tensor of truth values: of no other kind does the compiler take these
    operators, unless it is a scalar whose truth Python tells as well."""
    return isinstance(value, tl.tensor) and (value.type.is_block() or value.dtype == tl.int1)


def _and(*operands: Callable[[], Any]) -> Any:
    return _joined(operands, stock.interpreter_semantic.logical_and, decides=False)


def _or(*operands: Callable[[], Any]) -> Any:
    return _joined(operands, stock.interpreter_semantic.logical_or, decides=True)


def _joined(
    operands: tuple[Callable[[], Any], ...], join: Callable[[Any, Any], Any], *, decides: bool
) -> Any:
    """As the compiler does it: tensors are all evaluated and joined; of the rest, one that decides is
    the answer, and any other has no effect."""
    tensors, value = [], None
    for operand in operands:
        value = operand()
        if _is_truth(value):
            tensors.append(value)
        elif bool(value) is decides:
            return value
    if not tensors:
        return value
    joined = tensors[0]
    for tensor in tensors[1:]:
        joined = join(joined, tensor)
    return joined


def _not(value: Any) -> Any:
    return stock.interpreter_semantic.not_(value) if _is_truth(value) else not value


def _min(*values: Any, **options: Any) -> Any:
    return _extreme(tl.minimum, builtins.min, values, options)


def _max(*values: Any, **options: Any) -> Any:
    return _extreme(tl.maximum, builtins.max, values, options)


def _extreme(
    of_tensors: Any, of_others: Any, values: tuple[Any, ...], options: dict[str, Any]
) -> Any:
    """Host code of a candidate's module finds these names too, and gets Python's meaning."""
    if len(values) < 2 or not any(isinstance(value, tl.tensor) for value in values):
        return of_others(*values, **options)
    least = values[0]
    for value in values[1:]:
        least = of_tensors(least, value, **options)
    return least
