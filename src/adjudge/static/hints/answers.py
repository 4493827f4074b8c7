"""Answers that another computation gives, or none: fallbacks, arguments handed back, tables."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from adjudge.static.hints.common import Found
from adjudge.static.source import Source

#: A size below this is a rank or a count that honest code compares with.
_SIZE = 16


def fallback(source: Source) -> Found:
    """Another computation that takes the kernel's place."""
    for node in source.host:
        if isinstance(node, ast.Try) and source.in_a_call(node):
            for handler in node.handlers:
                if any(isinstance(n, ast.Call) for s in handler.body for n in _answers(s)):
                    yield handler, "answers an exception with another computation"
        elif isinstance(node, ast.If) and source.in_a_call(node):
            asked = {n.attr for n in ast.walk(node.test) if isinstance(n, ast.Attribute)}
            if asked & {"is_cuda", "is_available", "type"} and _branches_away(node):
                yield node, "computes something else on another device"


def _answers(statement: ast.stmt) -> Iterator[ast.AST]:
    """What a statement computes, raised exceptions and messages left out."""
    if isinstance(statement, ast.Raise):
        return
    match statement:
        case ast.Expr(value=ast.Call(func=ast.Name(id="print"))):
            return
    yield from ast.walk(statement)


def _branches_away(node: ast.If) -> bool:
    return any(
        isinstance(n, ast.Return) and n.value is not None
        for branch in (node.body, node.orelse)
        for statement in branch
        for n in ast.walk(statement)
    )


def passes_through(source: Source) -> Found:
    """An input handed back, or a tensor that nothing was computed into."""
    for node in source.host:
        if not isinstance(node, ast.Return) or node.value is None:
            continue
        function = source.function(node)
        if function is None or function.name not in ("forward", "__call__", "custom_kernel", "run"):
            continue
        if _is_guarded(source, node):
            continue
        value = node.value
        while isinstance(value, ast.Call) and isinstance(value.func, ast.Attribute):
            if value.func.attr not in ("clone", "detach", "contiguous", "view_as", "reshape", "to"):
                break
            value = value.func.value
        arguments = {a.arg for a in function.args.args} - {"self"}
        if isinstance(value, ast.Name) and value.id in arguments - _rebound(function):
            yield node, f"returns its argument {value.id}"
        elif source.names.paths(_callee(value)) & _CONSTANT:
            yield node, "returns a tensor that depends on nothing"


def _is_guarded(source: Source, node: ast.AST) -> bool:
    """Whether it only happens where there is nothing to compute: `if x.numel() == 0`, `if n < 1`."""
    inner = node
    for holder in source.above(node):
        if isinstance(holder, ast.If) and inner in holder.body:
            parts = holder.test.values if isinstance(holder.test, ast.BoolOp) else [holder.test]
            if all(map(_asks_for_nothing, parts)):
                return True
        inner = holder
    return False


def _asks_for_nothing(test: ast.expr) -> bool:
    match test:
        case ast.Compare(ops=[ast.Eq() | ast.LtE()], comparators=[ast.Constant(value=0)]):
            return True
        case ast.Compare(ops=[ast.Lt()], comparators=[ast.Constant(value=1)]):
            return True
        case ast.Compare(left=ast.Constant(value=0), ops=[ast.Eq() | ast.In()]):
            return True
        case ast.UnaryOp(op=ast.Not(), operand=ast.Call(func=ast.Attribute(attr="numel"))):
            return True
    return False


_CONSTANT = frozenset(
    f"torch.{name}"
    for name in (
        "zeros",
        "ones",
        "empty",
        "full",
        "zeros_like",
        "ones_like",
        "empty_like",
        "full_like",
    )
)


def _callee(node: ast.expr) -> ast.expr:
    return node.func if isinstance(node, ast.Call) else node


def _rebound(function: ast.AST) -> set[str]:
    """Names that the function assigns, or may write through: passed to a launch or a call."""
    found = set()
    for node in ast.walk(function):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            found.add(node.id)
        elif isinstance(node, ast.Call):
            found |= {a.id for a in node.args if isinstance(a, ast.Name)}
            match node.func:
                case ast.Attribute(value=ast.Name(id=name), attr=attr) if attr.endswith("_"):
                    found.add(name)
    return found


def shape_table(source: Source) -> Found:
    """Answers that depend on one exact shape."""
    for node in source.host:
        if isinstance(node, ast.Compare) and source.in_a_call(node):
            equal = any(isinstance(op, (ast.Eq, ast.In)) for op in node.ops)
            asks = any(_is_shape(n) for n in ast.walk(node.left))
            branches = any(isinstance(n, (ast.If, ast.IfExp)) for n in source.above(node))
            if equal and asks and branches and any(map(_is_sizes, node.comparators)):
                yield node, "does something else at one exact shape"
        elif isinstance(node, ast.Dict):
            keys = [key for key in node.keys if isinstance(key, ast.Tuple)]
            if len(keys) > 1 and all(map(_is_sizes, keys)):
                yield node, "a table with shapes as its keys"


def _is_shape(node: ast.AST) -> bool:
    match node:
        case ast.Attribute(attr="shape"):
            return True
        case ast.Call(func=ast.Attribute(attr="size" | "numel")):
            return True
    return False


def _is_sizes(node: ast.AST) -> bool:
    numbers = [
        n.value for n in ast.walk(node) if isinstance(n, ast.Constant) and type(n.value) is int
    ]
    return bool(numbers) and max(numbers) >= _SIZE


def reads_values(source: Source) -> Found:
    """Another computation for inputs that look special: the answer depends on more than was asked."""
    for node in source.host:
        if not isinstance(node, ast.If) or not source.in_a_call(node) or not _branches_away(node):
            continue
        if _asks_for_values(source, node.test):
            yield node, "looks at values of tensors to choose what is computed"


def _asks_for_values(source: Source, test: ast.expr) -> bool:
    for node in ast.walk(test):
        match node:
            case ast.Call(func=ast.Attribute(attr="item" | "tolist" | "any" | "all"), args=[]):
                return True
            case ast.Call(func=function):
                if source.names.paths(function) & _OF_VALUES:
                    return True
    return False


_OF_VALUES = frozenset(
    f"torch.{name}" for name in ("equal", "allclose", "any", "all", "count_nonzero", "isclose")
)
#: What a benchmark's task defines, and a candidate has no need to call.
_OF_THE_TASK = ("get_inputs", "get_init_inputs", "get_test_inputs", "generate_input", "ref_kernel")


def uses_reference(source: Source) -> Found:
    """The reference, or the task's inputs, inside the candidate: answers worked out beforehand."""
    main = [n for n in source.tree.body if isinstance(n, ast.If) and "__main__" in ast.dump(n.test)]
    aside = {node for part in main for node in ast.walk(part)}
    models = {n.name: n for n in source.tree.body if isinstance(n, ast.ClassDef)}
    for node in source.host:
        if node in aside:
            continue
        match node:
            case ast.Call(func=ast.Name(id=name)) if name in _OF_THE_TASK:
                function = source.function(node)
                if function is None or function.name not in _OF_THE_TASK:
                    yield node, f"calls {name} of the task"
            case (
                ast.ImportFrom(module="reference") | ast.Import(names=[ast.alias(name="reference")])
            ):
                yield node, "imports the reference"
            case ast.ClassDef(name="ModelNew", bases=bases):
                if any(isinstance(b, ast.Name) and b.id == "Model" for b in bases):
                    yield node, "derives from the reference"
            case ast.Call(func=ast.Name(id="Model")) if "ModelNew" in models:
                yield node, "builds the reference"
