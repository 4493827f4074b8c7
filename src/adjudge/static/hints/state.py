"""What one call leaves behind for the next, and what is looked up by an address."""

from __future__ import annotations

import ast

from adjudge.static.hints.common import Found, is_of_the_module, targets
from adjudge.static.source import Source


def pointer_key(source: Source) -> Found:
    """An address or an identity that something is looked up or compared by."""
    tainted: set[str] = set()
    for node in source.host:
        if isinstance(node, ast.Assign) and any(
            _is_identity(source, n) for n in ast.walk(node.value)
        ):
            tainted |= {t.id for t in node.targets if isinstance(t, ast.Name)}
    for node in source.host:
        if _is_identity(source, node) or (isinstance(node, ast.Name) and node.id in tainted):
            for holder in source.above(node):
                if _looks_up(holder):
                    yield node, "looks something up, or compares, by an address or identity"
                if isinstance(holder, ast.stmt):
                    break


def _is_identity(source: Source, node: ast.AST) -> bool:
    match node:
        case ast.Call(func=function, args=[_]) if "id" in source.names.paths(function):
            return True
    called = source.names.called(node)
    asked = called or source.names.attribute(node)
    if asked is None:
        return False
    return asked[1] in ("data_ptr" if called else "_cdata", *_INTERFACES)


#: Attributes that hold an address among other things.
_INTERFACES = ("__array_interface__", "__cuda_array_interface__")


def _looks_up(node: ast.AST) -> bool:
    match node:
        case ast.Compare(comparators=[ast.Constant(value=None)]):
            # Whether there is an address at all.
            return False
        case ast.Subscript() | ast.Dict() | ast.Compare():
            # An address modulo something is a question about alignment.
            return not any(isinstance(n, ast.Mod) for n in ast.walk(node))
        case ast.Call(func=ast.Attribute(attr="get" | "setdefault" | "pop" | "add")):
            return True
    return False


def keeps_state(source: Source) -> Found:
    """What one call leaves behind for the next."""
    for node in source.host:
        if not source.in_a_call(node):
            continue
        for target in targets(node):
            if isinstance(node, ast.AugAssign) and _is_kept(source, target):
                yield node, f"counts in {ast.unparse(target)}"
            elif isinstance(node, ast.Assign) and _is_kept(source, target, node.value):
                yield node, f"keeps {ast.unparse(target)} for later calls"
        match node:
            case ast.Call(func=ast.Attribute(value=holder, attr=method)) if (
                method in _FILLS and _is_container(source, node, holder)
            ):
                yield node, f"keeps what it puts into {ast.unparse(holder)} for later calls"
            case ast.Call(func=ast.Attribute(value=holder, attr=method)) if (
                method in _COUNTS and _decides(source, holder)
            ):
                yield node, f"counts in {ast.unparse(holder)}, which decides what is done"
            case ast.Call(func=ast.Attribute(attr="__setattr__"), args=[ast.Name(id="self"), *_]):
                yield node, "keeps an attribute of self for later calls"
            case ast.Call(func=ast.Attribute(value=ast.Name(id="self"), attr="__setattr__")):
                yield node, "keeps an attribute of self for later calls"
            case ast.Call(func=ast.Name(id="next"), args=[turns, *_]) if isinstance(
                turns, (ast.Name, ast.Attribute)
            ) and _is_container(source, node, turns):
                yield node, f"counts with {ast.unparse(turns)}"
        if isinstance(node, (ast.Global, ast.Nonlocal)):
            yield node, f"writes {', '.join(node.names)} of an outer scope"
    for node in source.host:
        if isinstance(node, ast.Attribute | ast.Name):
            caches = source.names.paths(node) & {"functools.lru_cache", "functools.cache"}
            for path in caches:
                yield node, f"uses {path}"


#: Methods that leave their argument in what they are called on.
_FILLS = frozenset("append appendleft extend insert update setdefault copy_".split())


#: Methods that change a tensor by what is in it.
_COUNTS = frozenset("add_ sub_ mul_ div_ bitwise_xor_ logical_not_ fill_ zero_ copy_".split())


def _decides(source: Source, holder: ast.expr) -> bool:
    """Whether a branch in a call asks for an attribute of self."""
    match holder:
        case ast.Attribute(value=ast.Name(id="self"), attr=name):
            return any(
                isinstance(inner, ast.Attribute) and inner.attr == name
                for node in source.host
                if isinstance(node, (ast.If, ast.IfExp, ast.While)) and source.in_a_call(node)
                for inner in ast.walk(node.test)
            )
    return False


def _is_container(source: Source, node: ast.AST, holder: ast.expr) -> bool:
    """Whether what is filled outlives the call: an attribute of self, a name of the module, or a default
    value of the function's own."""
    match holder:
        case ast.Attribute(value=ast.Name(id="self")):
            return True
        case ast.Name(id=name):
            function = source.function(node)
            return is_of_the_module(source, name) or (
                function is not None and name in _with_defaults(function)
            )
    return False


def _with_defaults(function: ast.FunctionDef | ast.AsyncFunctionDef) -> set[str]:
    """Parameters whose default value is a container, made once for all calls."""
    given = function.args
    positional = [*given.posonlyargs, *given.args]
    pairs = [
        *zip(reversed(positional), reversed(given.defaults), strict=False),
        *zip(given.kwonlyargs, given.kw_defaults, strict=True),
    ]
    return {name.arg for name, default in pairs if _is_made(default)}


def _is_made(default: ast.expr | None) -> bool:
    match default:
        case ast.List() | ast.Dict() | ast.Set():
            return True
        case ast.Call(func=ast.Name(id=name) | ast.Attribute(attr=name)):
            return name in (
                "list",
                "dict",
                "set",
                "defaultdict",
                "Counter",
                "deque",
                "count",
                "iter",
            )
    return False


def _is_moved(target: ast.expr, value: ast.expr) -> bool:
    """`self.x = self.x.to(device)`: the same values in another place."""
    while isinstance(value, ast.Call) and isinstance(value.func, ast.Attribute):
        if value.func.attr not in ("to", "cuda", "contiguous", "type_as"):
            return False
        value = value.func.value
    return ast.unparse(value) == ast.unparse(target)


def _is_self(source: Source, name: str) -> bool:
    """Whether it is another name for self."""
    return any(
        isinstance(node, ast.Assign)
        and isinstance(node.value, ast.Name)
        and node.value.id == "self"
        and any(isinstance(t, ast.Name) and t.id == name for t in node.targets)
        for node in source.host
    )


def _is_kept(source: Source, target: ast.expr, value: ast.expr | None = None) -> bool:
    """Whether a target outlives the call: an attribute of self, an entry of a container there or in
    the module; not where the value was there before."""
    if value is not None and _is_moved(target, value):
        return False
    match target:
        case ast.Attribute(value=ast.Name(id="self")):
            return True
        case ast.Subscript(value=ast.Attribute(value=ast.Name(id="self"))):
            return True
        case ast.Subscript(value=ast.Name(id=name)):
            function = source.function(target)
            in_default = function is not None and name in _with_defaults(function)
            return in_default or is_of_the_module(source, name)
        case ast.Subscript(value=ast.Call(func=ast.Name(id="globals"), args=[])):
            return True
        case ast.Attribute(value=ast.Call(func=ast.Name(id="type"), args=[ast.Name(id="self")])):
            return True
        case ast.Attribute(value=ast.Name(id=name)) if _is_self(source, name):
            return True
        case ast.Attribute(value=ast.Name(id=name)):
            # An attribute of a class or function that the module defines.
            defined = (ast.ClassDef, ast.FunctionDef)
            return any(isinstance(n, defined) and n.name == name for n in source.tree.body)
    return False
