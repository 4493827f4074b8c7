"""Answers that something else than the kernel gives: fallbacks, tables by shape, branches on values, the
reference."""

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
        if isinstance(node, ast.With) and source.in_a_call(node):
            if _suppresses(source, node) and _answers_after(source, node):
                yield node, "answers with another computation after a suppressed exception"
        elif isinstance(node, ast.Try) and source.in_a_call(node):
            if any(isinstance(n, ast.Return) for s in node.finalbody for n in ast.walk(s)):
                yield node, "returns from finally, which drops every exception"
            silent = node.handlers and all(map(_is_silent, node.handlers))
            if silent and _answers_after(source, node):
                yield node, "answers with another computation after an exception"
            for handler in node.handlers:
                if any(isinstance(n, ast.Call) for s in handler.body for n in _answers(s)):
                    yield handler, "answers an exception with another computation"
        elif isinstance(node, ast.If) and source.in_a_call(node):
            asked = {n.attr for n in ast.walk(node.test) if isinstance(n, ast.Attribute)}
            if asked & {"is_cuda", "is_available", "type"} and _branches_away(node):
                yield node, "computes something else on another device"


def _suppresses(source: Source, node: ast.With) -> bool:
    """`contextlib.suppress` of more than a missing package."""
    for item in node.items:
        call = item.context_expr
        if isinstance(call, ast.Call) and "contextlib.suppress" in source.names.paths(call.func):
            names = {path for kind in call.args for path in source.names.paths(kind)}
            return not names <= {"ImportError", "ModuleNotFoundError"}
    return False


def _is_silent(handler: ast.ExceptHandler) -> bool:
    """Whether it goes on as if nothing had happened."""
    return all(
        isinstance(s, (ast.Pass, ast.Continue))
        or (isinstance(s, ast.Expr) and isinstance(s.value, ast.Constant))
        for s in handler.body
    )


def _answers_after(source: Source, node: ast.With | ast.Try) -> bool:
    """Whether the part returns what a call gives, and the statements behind it return another one."""
    holder = next(source.above(node), None)
    statements = getattr(holder, "body", [])
    behind = statements[statements.index(node) + 1 :] if node in statements else []
    return _returns_a_computation(node.body) and _returns_a_computation(behind)


def _returns_a_computation(statements: list[ast.stmt]) -> bool:
    return any(
        isinstance(n, ast.Return) and isinstance(n.value, (ast.Call, ast.BinOp))
        for statement in statements
        for n in ast.walk(statement)
    )


def _answers(statement: ast.stmt) -> Iterator[ast.AST]:
    """What a statement computes, raised exceptions and messages left out."""
    if isinstance(statement, ast.Raise):
        return
    match statement:
        case ast.Expr(value=ast.Call(func=ast.Name(id="print"))):
            return
    yield from ast.walk(statement)


def _branches_away(node: ast.If | ast.While) -> bool:
    return any(
        isinstance(n, ast.Return) and n.value is not None
        for branch in (node.body, node.orelse)
        for statement in branch
        for n in ast.walk(statement)
    )


def shape_table(source: Source) -> Found:
    """Answers that depend on one exact shape."""
    for node in source.host:
        if isinstance(node, ast.Compare) and source.in_a_call(node):
            equal = any(isinstance(op, (ast.Eq, ast.In)) for op in node.ops)
            asks = any(_is_shape(n) for n in ast.walk(node.left))
            branches = any(isinstance(n, (ast.If, ast.IfExp)) for n in source.above(node))
            if equal and asks and branches and any(map(_is_sizes, node.comparators)):
                yield node, "does something else at one exact shape"
        elif isinstance(node, ast.Match) and source.in_a_call(node):
            if any(_is_shape(n) for n in ast.walk(node.subject)):
                for case in node.cases:
                    if _is_sizes(case.pattern):
                        yield case.pattern, "does something else at one exact shape"
        elif isinstance(node, (ast.Subscript, ast.Call)) and _is_looked_up(source, node):
            yield node, "looks an answer up by the exact sizes"
        elif isinstance(node, ast.Dict):
            keys = [key for key in node.keys if isinstance(key, ast.Tuple)]
            if len(keys) > 1 and all(map(_is_sizes, keys)):
                yield node, "a table with shapes as its keys"


def _is_looked_up(source: Source, node: ast.Subscript | ast.Call) -> bool:
    """`{...}[x.shape]` and `TABLE.get(x.shape)`, of a table with sizes as keys and something else than
    whole numbers (block sizes, numbers of warps) to find."""
    match node:
        case ast.Subscript(value=table, slice=key):
            pass
        case ast.Call(func=ast.Attribute(value=table, attr="get"), args=[key, *_]):
            pass
        case _:
            return False
    if not source.in_a_call(node) or not any(_is_shape(n) for n in ast.walk(key)):
        return False
    if isinstance(table, ast.Name):
        bound = source.assigned.get(table.id, [])
        table = bound[0] if len(bound) == 1 else table
    if not isinstance(table, ast.Dict):
        return False
    keys = [k for k in table.keys if k is not None]
    return bool(keys) and all(map(_is_sizes, keys)) and not all(map(_is_setting, table.values))


def _is_setting(value: ast.expr) -> bool:
    """A number of something, several of them, or a name for them."""
    match value:
        case ast.Constant(value=int() | str() | None):
            return True
        case ast.Tuple(elts=parts) | ast.List(elts=parts) | ast.Dict(values=parts):
            return all(map(_is_setting, parts))
        case ast.Call(keywords=[_, *_]):
            # `dict(BLOCK=64)`, `triton.Config(...)`.
            return True
    return False


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
        if not isinstance(node, (ast.If, ast.While, ast.IfExp, ast.Call)) or not source.in_a_call(
            node
        ):
            continue
        if isinstance(node, ast.Call):
            if source.names.paths(node.func) & _DIGESTS and _takes_bytes_of_a_tensor(node):
                yield node, "takes a digest of a tensor"
            continue
        away = (
            _branches_away(node)
            if isinstance(node, (ast.If, ast.While))
            else isinstance(next(source.above(node), None), ast.Return)
        )
        if away and _asks_for_values(source, node.test):
            yield node, "looks at values of tensors to choose what is computed"


_DIGESTS = frozenset(
    {"hashlib.md5", "hashlib.sha1", "hashlib.sha256", "hashlib.blake2b", "hashlib.blake2s",
     "hashlib.sha512", "hashlib.new", "zlib.crc32", "zlib.adler32", "hash"}
)  # fmt: skip


def _takes_bytes_of_a_tensor(node: ast.Call) -> bool:
    return any(
        isinstance(n, ast.Attribute) and n.attr in ("tobytes", "tolist", "numpy")
        for argument in node.args
        for n in ast.walk(argument)
    )


def _asks_for_values(source: Source, test: ast.expr) -> bool:
    for node in ast.walk(test):
        match node:
            case ast.Call(func=ast.Attribute(attr="item" | "tolist" | "any" | "all"), args=[]):
                return True
            case ast.Call(func=ast.Name(id="float" | "int" | "bool"), args=[value]):
                if any(map(_is_reduced, ast.walk(value))):
                    return True
            case ast.Compare(left=left, comparators=[ast.Constant(value=int() | float())]):
                if _is_reduced(left):
                    return True
            case ast.Call(func=function):
                if source.names.paths(function) & _OF_VALUES:
                    return True
    return False


def _is_reduced(node: ast.AST) -> bool:
    """`x.sum()`, of the values; `len(x)` and `max(a, b)` ask for no values."""
    match node:
        case ast.Call(func=ast.Attribute(value=base, attr=method)) if method in _REDUCED:
            return not (isinstance(base, ast.Name) and base.id in ("math", "np", "numpy"))
    return False


_REDUCED = frozenset("sum mean max min amax amin norm std var prod median argmax argmin".split())

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
