"""Functions and modules in memory: `adjudge.verify(candidate, reference, inputs=...)`.

The reference is trusted and called here. The candidate is *not* called here: its source file is read
from disk and loaded in the worker, by the name under which it is defined.
"""

from __future__ import annotations

import contextlib
import copy
import inspect
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from adjudge.errors import NestedVerdict, UsageError
from adjudge.frontends.sources import language, parsed, read
from adjudge.frontends.specs import detached, requires_grad, spec_of, state_specs
from adjudge.inputs.sampler import Sampler
from adjudge.program import Arguments, OutsideDomain, answer
from adjudge.task import Candidate, Declared, Symbol, Task, TensorSpec
from adjudge.worker.protocol import INSIDE

if TYPE_CHECKING:
    from adjudge.contract import Verdict
    from adjudge.judge.verify import Options

Shape = tuple[int, ...]


class CallableProgram:
    """A reference function or module with example inputs. Implements `program.Program`.

    Sizes that are equal among the examples' dimensions are taken to be one symbol, and the symbol is
    kept if the reference still answers when it alone is changed.
    """

    def __init__(self, reference: Callable[..., Any], example: Arguments) -> None:
        self._reference = reference
        self._example = detached(example)
        self._specs = {name: spec_of(name, t) for name, t in self._example.tensors()}
        parameters: tuple[TensorSpec, ...] = ()
        if isinstance(reference, torch.nn.Module):
            parameters = state_specs(reference)
        name = getattr(reference, "__name__", type(reference).__name__)
        self._task = Task(
            name=name,
            frontend="callable",
            source=_text(reference),
            inputs=tuple(self._specs.values()),
            parameters=parameters,
            declared=Declared(training=requires_grad(example)),
        )
        self._task = replace(self._task, symbols=self._symbols())

    @property
    def task(self) -> Task:
        return self._task

    def arguments(self, sizes: Mapping[str, int], sampler: Sampler) -> Arguments:
        moved = {
            (name, axis): sizes[symbol.name]
            for symbol in self._task.symbols
            if symbol.name in sizes
            for name, axis in symbol.axes
        }
        return self._drawn(moved, sampler)

    def construct(self, arguments: Arguments, *, seed: int, redrawn: bool) -> Callable[..., Any]:
        if not isinstance(self._reference, torch.nn.Module):
            return self._reference
        try:
            fresh = copy.deepcopy(self._reference).cpu()
        except Exception as error:
            raise OutsideDomain(f"the module cannot be copied: {error}") from error
        if redrawn:
            _redraw(fresh, seed)
        return fresh

    def _drawn(self, moved: Mapping[tuple[str, int], int], sampler: Sampler) -> Arguments:
        def draw(path: str, value: Any) -> Any:
            if not isinstance(value, torch.Tensor):
                return value
            spec = self._specs[path]
            shape = tuple(moved.get((path, axis), n) for axis, n in enumerate(spec.shape))
            return sampler.for_tensor(shape, value.dtype, spec.low or 0.0, spec.high or 0.0)

        return self._example.mapped(draw)

    def _symbols(self) -> tuple[Symbol, ...]:
        places: dict[int, list[tuple[str, int]]] = {}
        for spec in self._specs.values():
            for axis, size in enumerate(spec.shape):
                places.setdefault(size, []).append((spec.name, axis))
        found = []
        for size, axes in sorted(places.items(), reverse=True):
            for group in _groups(axes):
                if size > 1 and self._answers(group, size):
                    name = "_".join([f"n{size}", *(f"{n}{a}" for n, a in group[:1])])
                    for mark in "[]'\"":
                        name = name.replace(mark, "")
                    found.append(Symbol(name=name, native=size, axes=tuple(group)))
                    break
        return tuple(found)

    def _answers(self, axes: Sequence[tuple[str, int]], size: int) -> bool:
        """Whether the reference runs when those axes alone are one longer, or half as long."""
        for other in (size + 1, max(1, size // 2)):
            arguments = self._drawn(dict.fromkeys(axes, other), Sampler(0))
            with contextlib.suppress(OutsideDomain):
                answer(self.construct(arguments, seed=0, redrawn=False), arguments)
                return True
        return False


def _groups(axes: list[tuple[str, int]]) -> list[list[tuple[str, int]]]:
    """All axes of one size together first; then those of the first tensor's alone."""
    alone = [[axis] for axis in axes]
    return [axes, *(alone if len(axes) > 1 else [])]


def _redraw(module: torch.nn.Module, seed: int) -> None:
    """Parameters drawn anew around what they are, so that no identity default hides an omission."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for tensor in module.state_dict().values():
            if tensor.is_floating_point():
                drawn = torch.rand(tensor.shape, generator=generator, dtype=torch.float64)
                tensor.mul_(0.75 + 0.5 * drawn)


def _text(reference: Callable[..., Any]) -> str:
    try:
        target = type(reference) if isinstance(reference, torch.nn.Module) else reference
        return inspect.getsource(target)
    except (OSError, TypeError):
        return repr(reference)


def candidate_of(candidate: Callable[..., Any] | torch.nn.Module | str | Path) -> Candidate:
    """The candidate by its source file: `"file.py::name"`, or a function or class defined in a file.

    Raises:
        UsageError: its source cannot be found (a lambda, a closure, an interactive session).
    """
    if isinstance(candidate, (str, Path)):
        path, _, entry = str(candidate).partition("::")
        if not entry:
            raise UsageError(
                "the candidate's name is missing", where=path, todo='Write "file.py::name".'
            )
        return _from_file(Path(path), entry, "function")
    if isinstance(candidate, torch.nn.Module):
        raise UsageError(
            "the candidate is a module that is already constructed",
            where=type(candidate).__name__,
            todo="Pass its class (constructed without arguments), so that the worker can build it.",
        )
    entry = getattr(candidate, "__qualname__", "")
    try:
        path = inspect.getsourcefile(candidate) or ""
    except TypeError:
        path = ""
    if not path or not Path(path).is_file() or "<" in entry or not entry:
        raise UsageError(
            "the candidate's source cannot be found: it must be a function or class at the top of a "
            "file, because it is loaded again, by name, in another process",
            where=entry or repr(candidate),
            todo='Move it to a file, or pass "file.py::name".',
        )
    kind = "module" if inspect.isclass(candidate) else "function"
    return _from_file(Path(path), entry, kind)


def _from_file(path: Path, entry: str, kind: str) -> Candidate:
    source = read(path)
    parsed(source, str(path))
    return Candidate(
        name=entry, source=source, entry=entry, kind=kind, path=str(path), language=language(source)
    )


def verify(
    candidate: Callable[..., Any] | str | Path,
    reference: Callable[..., Any],
    *,
    inputs: Sequence[Any] = (),
    kwargs: Mapping[str, Any] | None = None,
    options: Options | None = None,
) -> Verdict:
    """Judges a function (or module class) against a reference, from example inputs.

    Args:
        candidate: a function or class defined in a file, or "file.py::name". Never called here.
        reference: a function, or a module with its weights; trusted, and called here.
        inputs: example positional arguments: tensors, numbers, nested lists and mappings. Integer
            tensors keep the range of their example.
        kwargs: example keyword arguments.
        options: see `judge.verify.Options`.

    Raises:
        UsageError: the candidate's source cannot be found, or the reference fails on the examples.
        NestedVerdict: a candidate's file calls this while it is loaded.
    """
    if INSIDE in os.environ:
        raise NestedVerdict("a verdict cannot be asked for inside one")
    from adjudge.judge.verify import verify as judge

    if not callable(reference):
        raise UsageError(f"the reference is not callable: {type(reference).__name__}")
    if not isinstance(inputs, (list, tuple)):
        raise UsageError(
            f"inputs is a {type(inputs).__name__}", todo="Pass a list of the positional arguments."
        )
    under_judgement = candidate_of(candidate)
    example = Arguments(args=tuple(inputs), kwargs=dict(kwargs or {}))
    if not example.tensors():
        raise UsageError(
            "no example input is a tensor", todo="Pass the arguments of one ordinary call."
        )
    program = CallableProgram(reference, example)
    try:
        answer(program.construct(example, seed=0, redrawn=False), example.copied())
    except OutsideDomain as why:
        raise UsageError(
            f"the reference fails on the example inputs: {why}",
            todo="Check the inputs against the reference's signature.",
        ) from why
    return judge(program, under_judgement, options)
