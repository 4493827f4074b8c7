"""Finds the dimension symbols of a reference by varying the literals that feed its inputs.

A literal that moves an input dimension, and with which the reference still runs, is a symbol; so is a
constructor's literal that an output dimension equals wherever it is moved (features or channels out).
Literals that only work together (a width written once for the inputs and once for the constructor)
form one symbol. Meta tensors are the cheap filter; a run of the reference on real, small tensors is
the proof, made when a base point is chosen.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Mapping, Sequence
from itertools import combinations
from math import prod
from typing import TYPE_CHECKING, Any

import torch

from adjudge import arrays
from adjudge.inputs.sampler import Sampler
from adjudge.program import OutsideDomain, Program, answer
from adjudge.task import Symbol

if TYPE_CHECKING:
    from adjudge.frontends.kernelbench import KernelBenchProgram
    from adjudge.frontends.sites import Site

Shapes = tuple[tuple[str, tuple[int, ...]], ...]
Groups = dict[str, tuple["Site", ...]]

#: Elements of inputs and weights up to which a real run stands in for a meta run (milliseconds).
_REAL_RUN = 1 << 22
#: Small sizes by role: a row count, a feature or reduction width, the sides of 2-D and 3-D images.
#: A row is often one program instance, two milliseconds in the interpreter. The other sizes are
#: multiples of 8, which keeps divisibility by heads and groups; products stay near 10,000 elements.
#: Elements of inputs and outputs past which a base point is made lighter, and the least side of an
#: image it is made of.
_LIGHT, _SIDE = 1 << 14, 8
_ROWS, _BATCH, _WIDTH, _PLANE, _VOLUME, _CHANNELS = 4, 2, 64, 24, 10, 16


def discover(
    program: KernelBenchProgram, candidates: Sequence[Site]
) -> tuple[tuple[Symbol, ...], Groups]:
    """The symbols, and the literals that each one moves."""
    native = _shapes(program, {})
    if native is None:
        return (), {}
    moving = [site for site in candidates if _moves(program, site, native)]
    groups = _grouped(program, moving, candidates)
    groups += _widths(program, candidates, {site for group in groups for site in group}, native)
    symbols: list[Symbol] = []
    named: Groups = {}
    for group in groups:
        name = _name(group, named)
        named[name] = group
        symbols.append(_symbol(program, name, group, native))
    return tuple(symbols), named


def _variants(value: int) -> tuple[int, ...]:
    """Other values to try: a neighbour first, then ones that keep divisibility."""
    found = (value + 1, value * 2, value // 2, value + 8)
    return tuple(dict.fromkeys(v for v in found if v > 0 and v != value))


def _shapes(program: KernelBenchProgram, values: Mapping[Site, int]) -> Shapes | None:
    with contextlib.suppress(OutsideDomain):
        arguments = program.at_sites(values, None)
        return tuple((name, tuple(t.shape)) for name, t in arguments.tensors())
    with contextlib.suppress(OutsideDomain):
        arguments = program.at_sites(values, Sampler(0))
        return tuple((name, tuple(t.shape)) for name, t in arguments.tensors())
    return None


def _moves(program: KernelBenchProgram, site: Site, native: Shapes) -> bool:
    for value in _variants(site.value)[:2]:
        shapes = _shapes(program, {site: value})
        if shapes is not None and shapes != native and _same_ranks(shapes, native):
            return True
    return False


def _same_ranks(one: Shapes, other: Shapes) -> bool:
    return [(n, len(s)) for n, s in one] == [(n, len(s)) for n, s in other]


def _grouped(
    program: KernelBenchProgram, moving: Sequence[Site], candidates: Sequence[Site]
) -> list[tuple[Site, ...]]:
    groups: list[tuple[Site, ...]] = []
    taken: set[Site] = set()
    for site in moving:
        if site in taken:
            continue
        group = _working_group(program, site, candidates)
        if group is not None:
            groups.append(group)
            taken.update(group)
    return groups


def _widths(
    program: KernelBenchProgram, candidates: Sequence[Site], taken: set[Site], native: Shapes
) -> list[tuple[Site, ...]]:
    """Literals that move no input but are the size of an output: a width of the constructor."""
    outputs = None if _recurs(program) else _output_shapes(program, {})
    if outputs is None:
        return []
    groups: list[tuple[Site, ...]] = []
    for site in candidates:
        if site in taken or not any(site.value in shape for shape in outputs):
            continue
        group = _working_group(program, site, [c for c in candidates if c not in taken])
        if group is None or not _is_width(program, group, native, outputs):
            continue
        groups.append(group)
        taken.update(group)
    return groups


def _recurs(program: KernelBenchProgram) -> bool:
    """Recurrent layers unroll step by step on meta tensors: seconds for every literal."""
    with contextlib.suppress(OutsideDomain), torch.device("meta"):
        model = program.construct(program.at_sites({}, None), seed=0, redrawn=False)
        return isinstance(model, torch.nn.Module) and any(
            isinstance(module, torch.nn.RNNBase) for module in model.modules()
        )
    return False


def _is_width(
    program: KernelBenchProgram,
    group: tuple[Site, ...],
    native: Shapes,
    outputs: tuple[tuple[int, ...], ...],
) -> bool:
    value = group[0].value
    axes = {
        (leaf, axis)
        for leaf, shape in enumerate(outputs)
        for axis, size in enumerate(shape)
        if size == value
    }
    moved = False
    for other in _variants(value):
        values = dict.fromkeys(group, other)
        shapes = _output_shapes(program, values)
        if shapes is None:
            continue
        if _shapes(program, values) != native:
            return False
        moved = True
        axes = {
            (leaf, axis)
            for leaf, axis in axes
            if leaf < len(shapes) and axis < len(shapes[leaf]) and shapes[leaf][axis] == other
        }
    return moved and bool(axes)


def _output_shapes(
    program: KernelBenchProgram, values: Mapping[Site, int]
) -> tuple[tuple[int, ...], ...] | None:
    """Shapes of the reference's outputs on meta tensors, or None where it does not run on them."""
    try:
        arguments = program.at_sites(values, None)
        with torch.device("meta"):
            result = answer(program.construct(arguments, seed=0, redrawn=False), arguments)
    except (OutsideDomain, NotImplementedError):
        return None
    return tuple(tuple(t.shape) for _, t in arrays.tensors_in(result))


def _working_group(
    program: KernelBenchProgram, site: Site, candidates: Sequence[Site]
) -> tuple[Site, ...] | None:
    """The smallest set of equal literals around `site` that the reference runs with when moved."""
    twins = [c for c in candidates if c != site and c.value == site.value]
    tries: list[tuple[Site, ...]] = [(site,)]
    tries += [(site, twin) for twin in twins]
    tries += [(site, *pair) for pair in combinations(twins, 2)]
    if len(twins) > 2:
        tries.append((site, *twins))
    for group in tries[:16]:
        if any(_runs_on_meta(program, dict.fromkeys(group, v)) for v in _variants(site.value)):
            return group
    return None


def _runs_on_meta(program: KernelBenchProgram, values: Mapping[Site, int]) -> bool:
    """Whether the reference runs with these literals, without values.

    An operation without a meta kernel says nothing: then a real run, if it is small enough.
    """
    try:
        arguments = program.at_sites(values, None)
        with torch.device("meta"), torch.no_grad():
            program.construct(arguments, seed=0, redrawn=False)(
                *arguments.args, **dict(arguments.kwargs)
            )
        return True
    except NotImplementedError:
        return _runs_if_small(program, values)
    except Exception as error:
        return "meta" in str(error).lower() and _runs_if_small(program, values)


def _runs_if_small(program: KernelBenchProgram, values: Mapping[Site, int]) -> bool:
    elements = sum(prod(spec.shape) for spec in program.task.inputs)
    weights = sum(prod(spec.shape) for spec in program.task.parameters)
    if elements + weights > _REAL_RUN:
        return False
    return _runs(program, lambda: program.at_sites(values, Sampler(0)))


def _runs(program: Program, draw: Any) -> bool:
    """A real run. The caller sees to it that the sizes are small."""
    try:
        arguments = draw()
        answer(program.construct(arguments, seed=0, redrawn=False), arguments)
        return True
    except Exception:
        return False


def _name(group: tuple[Site, ...], taken: Iterable[str]) -> str:
    owners = [site.owner for site in group if site.named]
    name = owners[0] if owners else f"n{group[0].line}_{group[0].column}"
    held = set(taken)
    while name in held:
        name += "_"
    return name


def _symbol(
    program: KernelBenchProgram, name: str, group: tuple[Site, ...], native: Shapes
) -> Symbol:
    value = group[0].value
    axes: list[tuple[str, int]] = []
    before = program.at_sites({}, None) if _shapes(program, {}) else None
    moved: tuple[int, ...] = ()
    for other in _variants(value):
        shapes = _shapes(program, dict.fromkeys(group, other))
        if shapes is None or not _same_ranks(shapes, native):
            continue
        axes = [
            (where, axis)
            for (where, old), (_, new) in zip(native, shapes, strict=True)
            for axis, (a, b) in enumerate(zip(old, new, strict=True))
            if a != b
        ]
        with contextlib.suppress(OutsideDomain):
            after = program.at_sites(dict.fromkeys(group, other), None)
            if before is not None:
                moved = tuple(
                    i
                    for i, (a, b) in enumerate(zip(before.init_args, after.init_args, strict=False))
                    if not isinstance(a, torch.Tensor) and a != b
                )
        break
    return Symbol(name=name, native=value, axes=tuple(axes), init_args=moved)


def shrunken(program: Program) -> dict[str, int]:
    """A small point at which the reference really runs; the native point if there is none.

    All symbols at their small size first, then at twice and four times it, then with one symbol at
    its native size, then with all but one. The point is remembered on the program.
    """
    held: dict[str, int] | None = getattr(program, "small_point", None)
    if held is None:
        held = _lightened(program, _small_point(program))
        program.small_point = held  # type: ignore[attr-defined]
    return dict(held)


def _small_point(program: Program) -> dict[str, int]:
    task = program.task
    targets = {s.name: _target(program, s) for s in task.symbols}
    if runs_at(program, targets):
        return targets
    for factor in (2, 4):
        larger = {s.name: min(s.native, targets[s.name] * factor) for s in task.symbols}
        if runs_at(program, larger):
            return larger
    for kept in sorted(task.symbols, key=lambda s: -s.native):
        alone = {**targets, kept.name: kept.native}
        if runs_at(program, alone):
            return alone
    for kept in sorted(task.symbols, key=lambda s: s.native):
        others = {**task.native, kept.name: targets[kept.name]}
        if runs_at(program, others):
            return others
    return task.native


def _lightened(program: Program, sizes: dict[str, int]) -> dict[str, int]:
    """The point with the sides of its images halved while inputs and outputs together are heavy: a
    constructor's own width (64 channels out) multiplies what the inputs do not show."""
    sides = [
        s.name
        for s in program.task.symbols
        if not s.init_args and any(axis >= 2 for _, axis in s.axes)
    ]
    elements = _elements(program, sizes)
    while elements > _LIGHT:
        smaller = {n: max(_SIDE, size // 2) if n in sides else size for n, size in sizes.items()}
        smaller = {n: min(size, sizes[n]) for n, size in smaller.items()}
        elements = 0 if smaller == sizes else _elements(program, smaller)
        if elements:
            sizes = smaller
    return sizes


def _elements(program: Program, sizes: Mapping[str, int]) -> int:
    """Elements of inputs and outputs together; 0 where the reference does not run."""
    try:
        arguments = program.arguments(sizes, Sampler(0))
        result = answer(program.construct(arguments, seed=0, redrawn=False), arguments)
    except OutsideDomain:
        return 0
    return sum(t.numel() for _, t in [*arguments.tensors(), *arrays.tensors_in(result)])


def runs_at(program: Program, sizes: Mapping[str, int]) -> bool:
    """The proof: the reference constructed and run on real tensors at these sizes."""
    return _runs(program, lambda: program.arguments(sizes, Sampler(0)))


def _target(program: Program, symbol: Symbol) -> int:
    if not symbol.axes:
        return min(symbol.native, _CHANNELS)
    ranks = {spec.name: len(spec.shape) for spec in program.task.inputs}
    small = [_role(ranks.get(name, 1), axis, bool(symbol.init_args)) for name, axis in symbol.axes]
    # A size that several axes share is contracted over: it is as long as the longest asks.
    return min(symbol.native, max(small or [_WIDTH]))


def _role(rank: int, axis: int, in_constructor: bool) -> int:
    if rank == 1:
        return _WIDTH
    if axis == 0:
        return _ROWS if rank == 2 else _BATCH
    if rank == 2:
        return _WIDTH
    if axis == 1 and in_constructor:
        return _CHANNELS
    if rank == 3:
        return _WIDTH if axis == 2 else _CHANNELS
    return _PLANE if rank == 4 else _VOLUME
