"""What an expression in a candidate's source stands for, as far as its text tells.

The reading ignores the order of execution: a name stands for everything it is ever bound to. Strings
that are put together from constants are put together here too, so that `getattr(sys, "_get" + "frame")`
is read as `sys._getframe`.
"""

from __future__ import annotations

import ast
import base64
import builtins
import codecs
from collections.abc import Callable, Iterator

#: A part of a dotted path whose name is computed at run time.
UNKNOWN = "?"
#: Names bound through other names are followed this often.
_PASSES = 3
_LONGEST = 1 << 20

Paths = frozenset[str]
_NOTHING: Paths = frozenset()


class Names:
    """The dotted paths that expressions stand for, and the strings that are constant."""

    def __init__(self, tree: ast.AST) -> None:
        self._paths: dict[str, set[str]] = {}
        self._texts: dict[str, str | int | None] = {}
        self._known: dict[ast.AST, Paths] = {}
        for node in ast.walk(tree):
            for name, path in _imported(node):
                self._paths.setdefault(name, set()).add(path)
        for _ in range(_PASSES):
            texts: dict[str, str | int | None] = {}
            for node in ast.walk(tree):
                for name, value in _assigned(node):
                    self._paths.setdefault(name, set()).update(self.paths(value))
                    found = self._constant(value)
                    text = None if isinstance(found, bytes) else found
                    # A name with two meanings has none.
                    texts[name] = text if texts.get(name, text) == text else None
            self._texts = texts
            self._known.clear()

    def paths(self, node: ast.AST) -> Paths:
        """What the expression may stand for: "torch.cuda.Stream", "sys.?" if the name is computed;
        nothing if it is no attribute of a module or a builtin."""
        known = self._known.get(node)
        if known is None:
            known = self._known[node] = self._read(node)
        return known

    def _read(self, node: ast.AST) -> Paths:
        match node:
            case ast.Name(id=name):
                found = self._paths.get(name)
                if found:
                    return frozenset(found)
                return frozenset({name}) if found is None and hasattr(builtins, name) else _NOTHING
            case ast.Attribute(value=base, attr=attr):
                return frozenset(f"{path}.{attr}" for path in self.paths(base))
            case ast.Call(func=function, args=args) if args:
                return self._called(self.paths(function), args)
            case ast.Subscript(value=base, slice=key):
                return self._looked_up(base, self.text(key))
            case ast.NamedExpr(value=value):
                return self.paths(value)
            case ast.IfExp(body=one, orelse=other):
                return self.paths(one) | self.paths(other)
        return _NOTHING

    def _called(self, function: Paths, args: list[ast.expr]) -> Paths:
        if function & {"__import__", "importlib.import_module"}:
            return frozenset({self.text(args[0]) or UNKNOWN})
        if "getattr" in function and len(args) > 1:
            name = self.text(args[1]) or UNKNOWN
            return frozenset(f"{path}.{name}" for path in self.paths(args[0]))
        return _NOTHING

    def _looked_up(self, base: ast.expr, key: str | None) -> Paths:
        """`vars(module)[key]`, `module.__dict__[key]`, `sys.modules[key]`."""
        name = key or UNKNOWN
        if "sys.modules" in self.paths(base):
            return frozenset({name})
        if isinstance(base, ast.Call) and base.args and "vars" in self.paths(base.func):
            return frozenset(f"{path}.{name}" for path in self.paths(base.args[0]))
        if isinstance(base, ast.Attribute) and base.attr == "__dict__":
            return frozenset(f"{path}.{name}" for path in self.paths(base.value))
        return _NOTHING

    def text(self, node: ast.AST) -> str | None:
        """The string that the expression is, or None where that depends on the run."""
        value = self._constant(node)
        return value if isinstance(value, str) else None

    def _constant(self, node: ast.AST) -> str | bytes | int | None:
        match node:
            case ast.Constant(value=bool()):
                return None
            case ast.Constant(value=str() | bytes() | int() as value):
                return value
            case ast.Name(id=name):
                return self._texts.get(name)
            case ast.BinOp(left=left, op=ast.Add(), right=right):
                return self._joined([left, right], "")
            case ast.JoinedStr(values=parts):
                return self._joined(parts, "")
            case ast.FormattedValue(value=value, conversion=-1, format_spec=None):
                shown = self._constant(value)
                return str(shown) if isinstance(shown, int) else shown
            case ast.Subscript(value=value, slice=ast.Slice() as cut):
                return self._cut(value, cut)
            case ast.Call(func=ast.Name(id="chr"), args=[ast.Constant(value=int() as number)]):
                return chr(number) if 0 <= number < 0x110000 else None
            case ast.Call(func=ast.Attribute(value=base, attr=method), args=args):
                return self._method(base, method, args)
        return None

    def _joined(self, parts: list[ast.expr], between: str) -> str | None:
        texts = [self.text(part) for part in parts]
        known = [text for text in texts if text is not None]
        joined = between.join(known)
        return joined if len(known) == len(texts) and len(joined) <= _LONGEST else None

    def _cut(self, value: ast.expr, cut: ast.Slice) -> str | None:
        text = self.text(value)
        ends = []
        for end in (cut.lower, cut.upper, cut.step):
            try:
                ends.append(None if end is None else ast.literal_eval(end))
            except ValueError:
                return None
        valid = all(end is None or isinstance(end, int) for end in ends) and ends[2] != 0
        return text[slice(*ends)] if text is not None and valid else None

    def _method(self, base: ast.expr, method: str, args: list[ast.expr]) -> str | bytes | None:
        text = self._constant(base)
        if method == "join" and isinstance(text, str) and len(args) == 1:
            parts = args[0].elts if isinstance(args[0], (ast.List, ast.Tuple)) else None
            return None if parts is None else self._joined(parts, text)
        values = [self._constant(arg) for arg in args]
        if any(value is None or isinstance(value, int) for value in values):
            return None
        decode = _DECODERS.get((self._first_path(base), method))
        try:
            if decode is not None:
                return decode(*values)
            if isinstance(text, (str, bytes)) and method in _METHODS:
                made: object = getattr(text, method)(*values)
                return made if isinstance(made, (str, bytes)) and len(made) <= _LONGEST else None
        except (TypeError, ValueError, LookupError):
            return None
        return None

    def _first_path(self, node: ast.AST) -> str:
        return min(self.paths(node), default="")


_METHODS = (
    "replace",
    "lower",
    "upper",
    "strip",
    "decode",
    "encode",
    "removeprefix",
    "removesuffix",
)

_DECODERS: dict[tuple[str, str], Callable[..., str | bytes]] = {
    ("base64", "b64decode"): lambda text: base64.b64decode(text),
    ("bytes", "fromhex"): lambda text: bytes.fromhex(text),
    ("codecs", "decode"): lambda text, name="utf-8": codecs.decode(text, name),
}


def _imported(node: ast.AST) -> Iterator[tuple[str, str]]:
    if isinstance(node, ast.Import):
        for alias in node.names:
            whole, first = alias.name, alias.name.split(".")[0]
            yield (alias.asname, whole) if alias.asname else (first, first)
    elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
        for alias in node.names:
            yield alias.asname or alias.name, f"{node.module}.{alias.name}"


def _assigned(node: ast.AST) -> Iterator[tuple[str, ast.expr]]:
    match node:
        case ast.Assign(targets=targets, value=value):
            for target in targets:
                yield from _bound(target, value)
        case ast.AnnAssign(target=target, value=ast.expr() as value):
            yield from _bound(target, value)
        case ast.NamedExpr(target=target, value=value):
            yield from _bound(target, value)
        case ast.withitem(context_expr=value, optional_vars=ast.expr() as target):
            yield from _bound(target, value)
        case ast.ClassDef(name=name):
            yield name, ast.Constant(value=None)
        case ast.FunctionDef(args=arguments) | ast.Lambda(args=arguments):
            if isinstance(node, ast.FunctionDef):
                yield node.name, ast.Constant(value=None)
            # An argument is whatever the caller gives: no string, and no builtin of that name.
            every = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]
            for argument in every:
                yield argument.arg, ast.Constant(value=None)


def _bound(target: ast.expr, value: ast.expr) -> Iterator[tuple[str, ast.expr]]:
    if isinstance(target, ast.Name):
        yield target.id, value
        return
    match target, value:
        case (
            ast.Tuple(elts=targets) | ast.List(elts=targets),
            ast.Tuple(elts=values) | ast.List(elts=values),
        ) if len(targets) == len(values):
            for one, part in zip(targets, values, strict=True):
                yield from _bound(one, part)
