"""A candidate's source as a tree, with what each part lies in."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cached_property

from adjudge.static.names import Names

Function = ast.FunctionDef | ast.AsyncFunctionDef

#: Decorators that make a kernel of a function.
_KERNEL = frozenset({"triton.jit", "triton.runtime.jit", "triton.experimental.gluon.jit"})
#: Methods that run before the first call.
_CONSTRUCTORS = ("__init__", "__new__", "__post_init__", "__init_subclass__", "reset_parameters")


class Source:
    """The parsed text of one candidate."""

    def __init__(self, text: str) -> None:
        """
        Raises:
            SyntaxError: the text is no Python.
        """
        self.text = text
        self.tree = ast.parse(text)
        self.names = Names(self.tree)
        self._parents: dict[ast.AST, ast.AST] = {}
        self._functions: dict[ast.AST, Function] = {}
        for node in ast.walk(self.tree):
            inside = node if isinstance(node, Function) else self._functions.get(node)
            for child in ast.iter_child_nodes(node):
                self._parents[child] = node
                if inside is not None:
                    self._functions[child] = inside

    @cached_property
    def kernels(self) -> dict[str, ast.FunctionDef]:
        """Functions that run on the device, by name."""
        return {
            node.name: node
            for node in ast.walk(self.tree)
            if isinstance(node, ast.FunctionDef)
            and any(map(self.is_kernel_decorator, node.decorator_list))
        }

    def is_kernel_decorator(self, decorator: ast.expr) -> bool:
        """Whether a decorator makes a kernel, as `triton.jit` does."""
        bare = decorator.func if isinstance(decorator, ast.Call) else decorator
        return bool(self.names.paths(bare) & _KERNEL)

    @cached_property
    def assigned(self) -> dict[str, list[ast.expr]]:
        """Every value that a plain name is given by an assignment anywhere."""
        found: dict[str, list[ast.expr]] = {}
        for node in ast.walk(self.tree):
            if isinstance(node, ast.Assign):
                for name in {t.id for t in node.targets if isinstance(t, ast.Name)}:
                    found.setdefault(name, []).append(node.value)
        return found

    @cached_property
    def host(self) -> tuple[ast.AST, ...]:
        """Every node outside kernels."""
        inside = {node for kernel in self.kernels.values() for node in ast.walk(kernel)}
        return tuple(node for node in ast.walk(self.tree) if node not in inside)

    def above(self, node: ast.AST) -> Iterator[ast.AST]:
        """What the node lies in, from the inside out."""
        while node in self._parents:
            node = self._parents[node]
            yield node

    def function(self, node: ast.AST) -> Function | None:
        """The function whose body the node lies in."""
        return self._functions.get(node)

    def in_a_call(self, node: ast.AST) -> bool:
        """Whether the node runs when the candidate is called, not when it is loaded or built."""
        function = self.function(node)
        return function is not None and function.name not in self._building

    @cached_property
    def _building(self) -> frozenset[str]:
        """Names of functions that only constructors mention, and constructors themselves."""
        places: dict[str, set[str]] = {}
        for node in ast.walk(self.tree):
            name = node.attr if isinstance(node, ast.Attribute) else getattr(node, "id", None)
            if isinstance(name, str):
                function = self.function(node)
                places.setdefault(name, set()).add("" if function is None else function.name)
        functions = {n.name for n in ast.walk(self.tree) if isinstance(n, Function)}
        building = set(_CONSTRUCTORS)
        while True:
            more = {
                name
                for name in functions - building
                if places.get(name, set()) - {name} and places[name] <= building | {name}
            }
            if not more:
                return frozenset(building)
            building |= more
