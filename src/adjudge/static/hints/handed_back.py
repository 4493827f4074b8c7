"""Arguments handed back, and tensors that nothing was computed into."""

from __future__ import annotations

import ast
from collections import Counter
from dataclasses import dataclass

from adjudge.static.hints.common import Found
from adjudge.static.source import Function, Source

#: Functions that a judge calls.
_CALLED = ("forward", "__call__", "custom_kernel", "run")
#: Methods and functions of torch that leave every value as it is.
_SAME = frozenset("clone detach contiguous view_as reshape_as to alias positive".split())
#: Those that do with this number, on either side where it may stand there.
_NEUTRAL = {"mul": 1, "multiply": 1, "div": 1, "true_divide": 1, "divide": 1, "pow": 1,
            "add": 0, "sub": 0, "subtract": 0}  # fmt: skip
_OPERATORS: dict[type[ast.operator], tuple[int, bool]] = {
    ast.Mult: (1, True),
    ast.Div: (1, False),
    ast.Pow: (1, False),
    ast.Add: (0, True),
    ast.Sub: (0, False),
}


def passes_through(source: Source) -> Found:
    """An input handed back, or a tensor that nothing was computed into."""
    known: dict[Function, _Names] = {}
    for node in source.host:
        if not isinstance(node, ast.Return) or node.value is None:
            continue
        function = source.function(node)
        if function is None or function.name not in _CALLED or _is_guarded(source, node):
            continue
        if function not in known:
            known[function] = _Names.of(source, function)
        names = known[function]
        value = _unchanged(source, names, node.value)
        arguments = {a.arg for a in function.args.args} - {"self"}
        if isinstance(value, ast.Name) and value.id in arguments and names.is_untouched(value.id):
            yield node, f"returns its argument {value.id}"
        elif source.names.paths(_callee(value)) & _CONSTANT and names.are_idle(node.value):
            yield node, "returns a tensor that depends on nothing"


@dataclass(frozen=True, slots=True)
class _Names:
    """What a function does to its local names."""

    #: How often each is bound.
    bound: Counter[str]
    #: How often each is read.
    mentions: Counter[str]
    #: Those whose values may be written: given to a call or launch, or changed in place.
    written: frozenset[str]
    #: The one value of each that is bound once.
    values: dict[str, ast.expr]
    #: Empty tensors into which one other is copied, and nothing else is done.
    copies: dict[str, ast.expr]

    @classmethod
    def of(cls, source: Source, function: Function) -> _Names:
        bound: Counter[str] = Counter()
        mentions: Counter[str] = Counter()
        written: set[str] = set()
        values: dict[str, ast.expr] = {}
        copied: dict[str, ast.expr] = {}
        for node in ast.walk(function):
            match node:
                case ast.Name(id=name, ctx=ast.Store()):
                    bound[name] += 1
                case ast.Name(id=name):
                    mentions[name] += 1
                case ast.Assign(targets=[ast.Name(id=name)], value=value):
                    values[name] = value
                case ast.Subscript(value=ast.Name(id=name), ctx=ast.Store()):
                    written.add(name)
                case ast.Call(
                    func=ast.Attribute(value=ast.Name(id=name), attr="copy_"), args=[one, *_]
                ):
                    copied[name] = one
                    written.add(name)
                case ast.Call() if not _only_reads(source, node):
                    given = [*node.args, *(k.value for k in node.keywords)]
                    written |= {name for g in given if (name := _viewed(g))}
                    match node.func:
                        case ast.Attribute(value=ast.Name(id=name), attr=method) if method.endswith(
                            "_"
                        ) and not method.endswith("__"):
                            written.add(name)
        for name, value in reversed(list(values.items())):
            # What is written through a view is written.
            if name in written and (base := _viewed(value)):
                written.add(base)
        once = {n: v for n, v in values.items() if bound[n] == 1}
        # Mentioned where it is filled and where it is returned, and nowhere else.
        copies = {n: v for n, v in copied.items() if n in once and mentions[n] <= 2}
        return cls(bound, mentions, frozenset(written), once, copies)

    def are_idle(self, value: ast.expr) -> bool:
        """Whether the names in the expression are read nowhere else: nothing was done to them."""
        names = [n.id for n in ast.walk(value) if isinstance(n, ast.Name)]
        return all(name not in self.values or self.mentions[name] == 1 for name in names)

    def is_untouched(self, argument: str) -> bool:
        return not self.bound[argument] and argument not in self.written


def _only_reads(source: Source, call: ast.Call) -> bool:
    """Whether a call leaves its arguments alone: an operation that changes nothing, or a function of
    torch's own."""
    if _inner(source, call) is not None:
        return True
    return any(
        path.startswith("torch.") and not path.endswith("_") and not path.startswith("torch.ops")
        for path in source.names.paths(call.func)
    )


#: Methods that give the same memory.
_VIEWS = _SAME | frozenset(
    "view reshape flatten t transpose permute squeeze unsqueeze data_ptr unbind split chunk".split()
)


def _viewed(value: ast.expr) -> str:
    """The name whose memory an expression shows; "" if it is no name, or a view of none."""
    while True:
        match value:
            case ast.Name(id=name):
                return name
            case ast.Starred(value=inner) | ast.Subscript(value=inner):
                value = inner
            case ast.Attribute(value=inner, attr="data" | "T" | "mT"):
                value = inner
            case ast.Call(func=ast.Attribute(value=inner, attr=method)) if method in _VIEWS:
                value = inner
            case _:
                return ""


def _unchanged(source: Source, names: _Names, value: ast.expr) -> ast.expr:
    """The expression whose values the given one has, as far back as names and operations that change
    nothing lead."""
    seen: set[str] = set()

    def back(one: ast.expr) -> ast.expr:
        while isinstance(one, ast.Name) and one.id not in seen:
            if (
                one.id in names.copies
                and source.names.paths(_callee(names.values[one.id])) & _EMPTY
            ):
                following = names.copies[one.id]
            elif one.id in names.values and one.id not in names.written:
                following = names.values[one.id]
            else:
                break
            seen.add(one.id)
            one = following
        return one

    while True:
        value = back(value)
        inner = _inner(source, value)
        if inner is None:
            return value
        value = inner


def _inner(source: Source, value: ast.expr) -> ast.expr | None:
    """What an operation that changes nothing is made on; None for every other expression."""
    match value:
        case ast.BinOp(left=left, op=op, right=right) if type(op) in _OPERATORS:
            neutral, either = _OPERATORS[type(op)]
            if _is(right, neutral):
                return left
            return right if either and _is(left, neutral) else None
        case ast.UnaryOp(op=ast.UAdd(), operand=inner):
            return inner
        case ast.Subscript(value=inner, slice=ast.Slice(lower=None, upper=None, step=None)):
            return inner
        case ast.Subscript(value=inner, slice=ast.Constant(value=key)) if key is ...:
            return inner
        case ast.Call(func=ast.Attribute(value=base, attr=method), args=args):
            whole, rest = (base, args)
            if source.names.paths(value.func) == {f"torch.{method}"}:
                whole, rest = (args[0], args[1:]) if args else (base, [])
                if not args:
                    return None
            if method in _SAME or (method == "reshape" and whole is base):
                return whole
            if method in ("view", "expand") and rest and _is_own_shape(rest, whole):
                return whole
            if method in _NEUTRAL and len(rest) == 1 and not value.keywords:
                return whole if _is(rest[0], _NEUTRAL[method]) else None
    return None


def _is(node: ast.expr, number: int) -> bool:
    match node:
        case ast.Constant(value=int() | float() as value) if not isinstance(value, bool):
            return value == number
    return False


def _is_own_shape(sizes: list[ast.expr], whole: ast.expr) -> bool:
    """`x.view(x.shape)`, `x.view(*x.shape)`, `x.view(x.size())`."""
    own = ast.unparse(whole)
    shown = ast.unparse(sizes[0]).removeprefix("*") if len(sizes) == 1 else ""
    return shown in (f"{own}.shape", f"{own}.size()")


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


_EMPTY = frozenset(f"torch.{name}" for name in ("empty", "empty_like", "zeros", "zeros_like"))


def _callee(node: ast.expr) -> ast.expr:
    return node.func if isinstance(node, ast.Call) else node
