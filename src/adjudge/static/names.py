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
import re
from collections.abc import Callable, Iterator, Set

#: A part of a dotted path whose name is computed at run time.
UNKNOWN = "?"
#: Names bound through other names are followed this often.
_PASSES = 3
_LONGEST = 1 << 20
#: Characters of all strings that are kept here (64 MiB): a hostile source could ask for any number.
_ROOM = 1 << 26
#: What one expression may stand for; each alternative doubles the number, so that thirty lines would
#: make a thousand million. Beyond it, and beyond a path of as many characters, it is not known.
_MOST_PATHS, _LONGEST_PATH = 64, 1024
_CODES = 0x110000
#: A width in a pattern: what it makes may be of any length.
_WIDE = re.compile(r"\d{4,}|\*")

Paths = frozenset[str]
_NOTHING: Paths = frozenset()


class Names:
    """The dotted paths that expressions stand for, and the strings that are constant."""

    def __init__(self, tree: ast.AST) -> None:
        self._paths: dict[str, set[str]] = {}
        self._texts: dict[str, str | int | None] = {}
        self._forget()
        for node in ast.walk(tree):
            for name, path in _imported(node):
                self._paths.setdefault(name, set()).add(path)
        for _ in range(_PASSES):
            texts: dict[str, str | int | None] = {}
            for node in ast.walk(tree):
                for name, value in _assigned(node):
                    self._settle(value)
                    paths = self._paths.setdefault(name, set())
                    self._paths[name] = set(_bounded(paths | self.paths(value)))
                    found = self._constant(value)
                    text = None if isinstance(found, bytes) else found
                    # A name with two meanings has none.
                    texts[name] = text if texts.get(name, text) == text else None
            self._texts = texts
            self._forget()
        self._settle(tree)

    def _forget(self) -> None:
        self._known: dict[ast.AST, Paths] = {}
        self._values: dict[ast.AST, str | bytes | int | None] = {}
        self._room = _ROOM

    def _settle(self, root: ast.AST) -> None:
        """Reads every part before what it is a part of, so that no depth of nesting is too deep."""
        if root not in self._values:
            for node in reversed(list(ast.walk(root))):
                self.paths(node)
                self._constant(node)

    def paths(self, node: ast.AST) -> Paths:
        """What the expression may stand for: "torch.cuda.Stream", "sys.?" if the name is computed;
        nothing if it is no attribute of a module or a builtin."""
        known = self._known.get(node)
        if known is None:
            known = self._known[node] = _bounded(self._read(node))
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

    def attribute(self, node: ast.AST) -> tuple[ast.expr, str] | None:
        """What the expression asks an attribute of, and its name: `x.shape`, `getattr(x, "sha" + "pe")`,
        `operator.attrgetter("shape")(x)`. None where it asks none, or the name depends on the run."""
        match node:
            case ast.Attribute(value=base, attr=name):
                return base, name
            case ast.Call(func=function, args=[base, key, *_]) if "getattr" in self.paths(function):
                return self._named(base, key)
            case ast.Call(func=ast.Attribute(value=base, attr="__getattribute__"), args=[key]):
                return self._named(base, key)
            case ast.Call(func=ast.Call(func=maker, args=[key, *_]), args=[base]) if self.paths(
                maker
            ) & {"operator.attrgetter", "operator.methodcaller"}:
                return self._named(base, key)
        return None

    def called(self, node: ast.AST) -> tuple[ast.expr, str] | None:
        """What a method is called of, and the method's name, however it is asked for."""
        if not isinstance(node, ast.Call):
            return None
        if isinstance(node.func, ast.Call) and "operator.methodcaller" in self.paths(
            node.func.func
        ):
            return self.attribute(node)
        return self.attribute(node.func)

    def _named(self, base: ast.expr, key: ast.expr) -> tuple[ast.expr, str] | None:
        name = self.text(key)
        return None if name is None else (base, name)

    def text(self, node: ast.AST) -> str | None:
        """The string that the expression is, or None where that depends on the run."""
        value = self._constant(node)
        return value if isinstance(value, str) else None

    def _constant(self, node: ast.AST) -> str | bytes | int | None:
        if node not in self._values:
            found = self._evaluated(node)
            self._room -= len(found) if isinstance(found, (str, bytes)) else 0
            self._values[node] = found if self._room >= 0 else None
        return self._values[node]

    def _evaluated(self, node: ast.AST) -> str | bytes | int | None:
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
            case ast.BinOp(left=left, op=ast.Mod(), right=right):
                return self._formatted(left, right)
            case ast.Call(func=ast.Name(id="chr"), args=[code]):
                number = self._constant(code)
                return chr(number) if isinstance(number, int) and 0 <= number < _CODES else None
            case ast.Call(func=ast.Name(id="bytes" | "bytearray"), args=[codes]):
                numbers = self._numbers(codes)
                return (
                    bytes(numbers)
                    if numbers is not None and max(numbers, default=0) < 256
                    else None
                )
            case ast.Call(func=ast.Name(id="str"), args=[value, *_]):
                shown = self._constant(value)
                if isinstance(shown, bytes):
                    return shown.decode(errors="replace") if len(node.args) > 1 else None
                return None if shown is None else str(shown)
            case ast.Call(func=ast.Attribute(value=base, attr=method), args=args):
                return self._method(base, method, args, node.keywords)
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

    def _texts_in(self, node: ast.expr) -> list[str] | None:
        """The strings of a sequence: a list, a string's characters, `reversed` of either, `chr` of
        numbers (by `map` or a comprehension)."""
        match node:
            case ast.List(elts=parts) | ast.Tuple(elts=parts):
                texts = [self.text(part) for part in parts]
                known = [text for text in texts if text is not None]
                return known if len(known) == len(texts) else None
            case ast.Call(func=ast.Name(id="reversed"), args=[inner]):
                found = self._texts_in(inner)
                return None if found is None else found[::-1]
            case ast.Call(func=ast.Name(id="map"), args=[ast.Name(id="chr"), codes]):
                return self._characters(codes)
            case (
                ast.GeneratorExp(
                    elt=ast.Call(func=ast.Name(id="chr"), args=[ast.Name(id=used)]),
                    generators=[ast.comprehension(target=ast.Name(id=name), iter=codes, ifs=[])],
                )
                | ast.ListComp(
                    elt=ast.Call(func=ast.Name(id="chr"), args=[ast.Name(id=used)]),
                    generators=[ast.comprehension(target=ast.Name(id=name), iter=codes, ifs=[])],
                )
            ) if used == name:
                return self._characters(codes)
        text = self.text(node)
        return None if text is None else list(text)

    def _characters(self, codes: ast.expr) -> list[str] | None:
        numbers = self._numbers(codes)
        if numbers is None or max(numbers, default=0) >= _CODES:
            return None
        return [chr(number) for number in numbers]

    def _numbers(self, node: ast.expr) -> list[int] | None:
        """The numbers of a list, all from 0 up."""
        match node:
            case ast.List(elts=parts) | ast.Tuple(elts=parts):
                found = [self._constant(part) for part in parts]
                known = [number for number in found if isinstance(number, int) and number >= 0]
                return known if len(known) == len(found) else None
        text = self._constant(node)
        return list(text) if isinstance(text, bytes) else None

    def _formatted(self, left: ast.expr, right: ast.expr) -> str | None:
        """`"%s_%s" % (a, b)`, where nothing but strings and numbers is put in."""
        pattern = self.text(left)
        parts = right.elts if isinstance(right, ast.Tuple) else [right]
        values = [self._constant(part) for part in parts]
        if pattern is None or any(value is None for value in values) or _WIDE.search(pattern):
            return None
        try:
            return pattern % tuple(values)
        except (TypeError, ValueError, KeyError):
            return None

    def _filled(
        self, pattern: str, args: list[ast.expr], keywords: list[ast.keyword]
    ) -> str | None:
        """`"{}_{b}".format(a, b=b)`, of plain fields."""
        values = [self.text(arg) for arg in args]
        named = {keyword.arg: self.text(keyword.value) for keyword in keywords}
        if None in values or None in named or None in named.values() or _WIDE.search(pattern):
            return None
        try:
            return pattern.format(*values, **{str(name): text for name, text in named.items()})
        except (IndexError, KeyError, ValueError, AttributeError):
            return None

    def _method(
        self, base: ast.expr, method: str, args: list[ast.expr], keywords: list[ast.keyword]
    ) -> str | bytes | None:
        text = self._constant(base)
        if method == "join" and isinstance(text, str) and len(args) == 1:
            found = self._texts_in(args[0])
            whole = None if found is None else text.join(found)
            return whole if whole is None or len(whole) <= _LONGEST else None
        if method == "format" and isinstance(text, str):
            return self._filled(text, args, keywords)
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


def _bounded(paths: Set[str]) -> Paths:
    if len(paths) > _MOST_PATHS or any(len(path) > _LONGEST_PATH for path in paths):
        return frozenset({UNKNOWN})
    return frozenset(paths)


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
