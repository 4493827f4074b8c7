"""KernelBench files: a reference with `Model`, `get_inputs`, `get_init_inputs`; a candidate with
`ModelNew`.

The reference is trusted and executed here. The candidate is only parsed.
"""

from __future__ import annotations

import ast
import contextlib
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import torch

from adjudge.errors import UsageError
from adjudge.frontends.sites import FUNCTIONS, OnTheJudge, Site, replaced, sites
from adjudge.frontends.sources import language, parsed, read
from adjudge.frontends.specs import detached, requires_grad, spec_of, state_specs
from adjudge.inputs.sampler import Sampler
from adjudge.program import Arguments, OutsideDomain
from adjudge.symbols import discover, shrunken
from adjudge.task import Candidate, Declared, Task, TensorSpec
from adjudge.weights import construct

_NEEDED = ("Model", *FUNCTIONS)
#: Constant of a reference file by which its task demands a kernel of the candidate's own.
KERNEL_DEMANDED = "REQUIRES_KERNEL"


class KernelBenchProgram:
    """The reference of one KernelBench problem. Implements `program.Program`."""

    def __init__(self, source: str, name: str, path: str = "") -> None:
        tree = parsed(source, path or name)
        self._check_names(tree, path or name)
        self._tree = ast.fix_missing_locations(OnTheJudge().visit(tree))
        self._where = path or name
        namespace = self._executed(self._tree)
        self._model = namespace["Model"]
        self._groups: dict[str, tuple[Site, ...]] = {}
        self._namespaces = lru_cache(maxsize=256)(self._namespace)
        bare = Task(name=name, frontend="kernelbench", source=source, path=path)
        found = replace(bare, **self._described())
        kernel = bool(namespace.get(KERNEL_DEMANDED, False))
        self._task = replace(found, declared=replace(found.declared, kernel=kernel))
        symbols, self._groups = discover(self, sites(self._tree))
        self._task = replace(self._task, symbols=symbols)
        self._task = replace(self._task, inputs=self._ranged())

    @property
    def task(self) -> Task:
        return self._task

    def arguments(self, sizes: Mapping[str, int], sampler: Sampler) -> Arguments:
        values = {
            site: sizes[name]
            for name, group in self._groups.items()
            if name in sizes
            for site in group
        }
        return self.at_sites(values, sampler)

    def at_sites(self, values: Mapping[Site, int], sampler: Sampler | None) -> Arguments:
        """The inputs with those literals changed; on the meta device where there is no sampler."""
        namespace = self._namespaces(tuple(sorted(values.items(), key=repr)))
        try:
            if sampler is None:
                with torch.device("meta"):
                    return _collected(namespace)
            with sampler.patched():
                return detached(_collected(namespace))
        except Exception as error:
            raise OutsideDomain(f"{type(error).__name__}: {error}") from error

    def construct(self, arguments: Arguments, *, seed: int, redrawn: bool) -> Callable[..., Any]:
        try:
            built: Callable[..., Any] = construct(
                self._model,
                arguments.init_args,
                arguments.init_kwargs,
                seed=seed,
                redrawn=redrawn,
            )
        except Exception as error:
            raise OutsideDomain(f"{type(error).__name__}: {error}") from error
        return built

    def _namespace(self, values: tuple[tuple[Site, int], ...]) -> dict[str, Any]:
        tree = replaced(self._tree, dict(values)) if values else self._tree
        return self._executed(tree)

    def _executed(self, tree: ast.Module) -> dict[str, Any]:
        namespace: dict[str, Any] = {"__name__": "adjudge_reference", "__file__": self._where}
        try:
            exec(compile(tree, self._where, "exec"), namespace)
        except ModuleNotFoundError as error:
            raise UsageError(
                f"the reference imports {error.name}, which is not installed",
                where=self._where,
                todo=f"Install it (pip install {error.name}) or remove the import.",
            ) from error
        except Exception as error:
            raise UsageError(
                f"the reference cannot be executed: {type(error).__name__}: {error}",
                where=self._where,
            ) from error
        return namespace

    @staticmethod
    def _check_names(tree: ast.Module, where: str) -> None:
        defined = {
            node.name for node in tree.body if isinstance(node, (ast.ClassDef, ast.FunctionDef))
        }
        missing = [name for name in _NEEDED if name not in defined]
        if missing:
            raise UsageError(
                f"the reference lacks {', '.join(missing)}",
                where=where,
                todo="A reference file defines class Model and the functions get_inputs() and "
                "get_init_inputs().",
            )

    def _described(self) -> dict[str, Any]:
        try:
            arguments = self.at_sites({}, None)
        except OutsideDomain:
            try:
                arguments = self.at_sites({}, Sampler(0))
            except OutsideDomain as why:
                raise UsageError(f"get_inputs() fails: {why}", where=self._where) from why
        specs = tuple(spec_of(name, tensor) for name, tensor in arguments.tensors())
        return {
            "inputs": specs,
            "parameters": self._parameters(),
            "declared": Declared(training=requires_grad(arguments)),
        }

    def _ranged(self) -> tuple[TensorSpec, ...]:
        """The inputs with the range of values they take, learned at a small point."""
        with contextlib.suppress(OutsideDomain):
            small = self.arguments(shrunken(self), Sampler(0))
            seen = {name: spec_of(name, tensor) for name, tensor in small.tensors()}
            return tuple(
                replace(spec, low=seen[spec.name].low, high=seen[spec.name].high)
                for spec in self._task.inputs
                if spec.name in seen
            )
        return self._task.inputs

    def _parameters(self) -> tuple[TensorSpec, ...]:
        with contextlib.suppress(OutsideDomain):
            arguments = self.at_sites({}, None)
            with torch.device("meta"):
                built = self.construct(arguments, seed=0, redrawn=False)
            if isinstance(built, torch.nn.Module):
                return state_specs(built)
        return ()


def _collected(namespace: Mapping[str, Any]) -> Arguments:
    init = namespace["get_init_inputs"]()
    inputs = namespace["get_inputs"]()
    init_args, init_kwargs = _split(init)
    args, kwargs = _split(inputs)
    return Arguments(init_args=init_args, init_kwargs=init_kwargs, args=args, kwargs=kwargs)


def _split(given: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Positional and keyword arguments: KernelBench gives a list, or a mapping by name."""
    if isinstance(given, Mapping):
        return (), dict(given)
    if isinstance(given, (list, tuple)):
        return tuple(given), {}
    return (given,), {}


def load(candidate_path: Path, reference_path: Path) -> tuple[KernelBenchProgram, Candidate]:
    """Program and candidate from two files.

    Raises:
        UsageError: a file is missing, does not parse, or lacks what it must define.
    """
    candidate = candidate_from(read(candidate_path), candidate_path.stem, str(candidate_path))
    program = KernelBenchProgram(read(reference_path), reference_path.stem, str(reference_path))
    return program, candidate


def from_source(reference: str, candidate: str, name: str) -> tuple[KernelBenchProgram, Candidate]:
    """Program and candidate from two texts."""
    return KernelBenchProgram(reference, name), candidate_from(candidate, name)


def candidate_from(source: str, name: str, path: str = "") -> Candidate:
    """The candidate, parsed and never executed.

    Raises:
        UsageError: it does not parse, or defines no `ModelNew` with a `forward`.
    """
    where = path or name
    tree = parsed(source, where)
    classes = [n for n in tree.body if isinstance(n, ast.ClassDef) and n.name == "ModelNew"]
    assigned = any(
        isinstance(n, ast.Assign)
        and any(isinstance(t, ast.Name) and t.id == "ModelNew" for t in n.targets)
        for n in tree.body
    )
    imported = any(
        isinstance(n, ast.ImportFrom) and any((a.asname or a.name) == "ModelNew" for a in n.names)
        for n in tree.body
    )
    if not (classes or assigned or imported):
        raise UsageError(
            "the candidate defines no class ModelNew",
            where=where,
            todo="Name the module under judgement ModelNew, with the constructor and the forward "
            "signature of the reference's Model.",
        )
    return Candidate(
        name=name, source=source, entry="ModelNew", path=path, language=language(source)
    )
