"""The probes on which a sum that is rounded on the way, once a term or once a block, loses a part.

They come in threes that differ in one number, how many bits the sum needs: none of them is lost by an
accumulator of 8 bits or more in the first, which says that the rest of the kernel is in order there;
one of 8 bits loses a part of the second, and one of 11 bits of the third.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from math import prod
from typing import NamedTuple

from adjudge.gates.protocol import Scene
from adjudge.inputs.levels import ALONE, PARTS, STEPS, SWAMPED
from adjudge.probe import Probe
from adjudge.task import Symbol, TensorSpec, merged

#: A sum so long is one of two blocks of 256, the largest that kernels take at once; a power of two, so
#: that a mean over it is exact. It is halved while the inputs have more elements than that: a square
#: product of half the length takes the interpreter half a second.
LENGTH, LARGEST = 512, 1 << 17
#: The small squares of so many are together 50 percent of the large one, or 6: a root of their sum is
#: off by 57 units of 8 bits, or by 62 of 11. The envelope of a norm in half precision ends at 42 to 45.
SWAMPED_LENGTH = 1 << 15
#: Sizes that are made so long, one at a time, and float inputs that may hold the parts.
MOST, DRAWS = 3, 3
#: Bits that the three sums need.
CONTROL, EIGHT, ELEVEN = 4, 9, 12

_LEVELS = {name: key for key, name in PARTS.items()}


class Trial(NamedTuple):
    control: Probe
    eight: Probe
    eleven: Probe


def trials(scene: Scene) -> list[Trial]:
    """For each size that may be summed over, with each way to hold the other inputs."""
    floats = [spec for spec in scene.task.inputs if _is_float(spec)]
    return _trials(scene, floats, _longer(scene, floats))


def tied(scene: Scene) -> list[Trial]:
    """The same with all sizes made long together that the task declares alike: a kernel may take the
    length of the keys for that of the queries."""
    floats = [spec for spec in scene.task.inputs if _is_float(spec)]
    alike = [
        group
        for group in ([s for s in _summed(scene, floats) if s.native == n] for n in _natives(scene))
        if len(group) > 1
    ]
    return _trials(scene, floats, _all_longer(scene, floats, alike))


def _trials(
    scene: Scene, floats: list[TensorSpec], longer: Iterator[tuple[dict[str, int], int]]
) -> list[Trial]:
    weights = "ones" if scene.task.parameters else "seeded"
    found = []
    for sizes, draw in longer:
        # With all queries and keys zero, attention is the mean of its values.
        for flat in (False, True) if len(floats) > 2 else (False,):
            plain = replace(scene.ordinary, weights=weights).at(sizes)
            found.append(
                Trial(
                    *(
                        replace(plain, distribution=PARTS[bits, draw, flat])
                        for bits in (CONTROL, EIGHT, ELEVEN)
                    )
                )
            )
    return found


def steps(scene: Scene) -> Trial:
    """The same for sums of squares, which cannot cancel."""
    return Trial(*(replace(scene.ordinary, distribution=name) for name in (ALONE, *STEPS)))


def swamped(scene: Scene) -> list[Probe]:
    """For sums of squares of a single input, the last axis of which is made long: one block after the
    other is lost, and the answer shows that in half precision too. The control comes first."""
    floats = [spec for spec in scene.task.inputs if _is_float(spec)]
    if len(scene.task.inputs) != 1 or len(floats) != 1 or not floats[0].shape:
        return []
    last = (floats[0].name, len(floats[0].shape) - 1)
    for symbol in scene.task.symbols:
        if last in symbol.axes and not symbol.init_args:
            sizes = merged(dict(scene.discovery.base), **{symbol.name: SWAMPED_LENGTH})
            if _elements(scene, sizes) <= LARGEST:
                long = scene.ordinary.at(sizes)
                return [replace(long, distribution=name) for name in (ALONE, *SWAMPED)]
    return []


def control_of(probe: Probe) -> Probe | None:
    """The probe of the same trial on which nothing is lost; None for one that is no trial's."""
    if probe.distribution in (*STEPS, *SWAMPED, ALONE):
        return replace(probe, distribution=ALONE)
    level = _LEVELS.get(probe.distribution)
    if level is None:
        return None
    return replace(probe, distribution=PARTS[CONTROL, level[1], level[2]])


def _longer(scene: Scene, floats: list[TensorSpec]) -> Iterator[tuple[dict[str, int], int]]:
    """Sizes with one of them long, and the number of the draw that holds the parts."""
    ordered = sorted(_summed(scene, floats), key=lambda s: _from_the_end(s, floats))
    return _all_longer(scene, floats, [[symbol] for symbol in ordered[:MOST]])


def _summed(scene: Scene, floats: list[TensorSpec]) -> list[Symbol]:
    """Sizes that may be summed over: what two inputs have in common may be contracted, and an axis of
    one alone is not."""
    held = {s.name: _holders(s, floats) for s in scene.task.symbols}
    shared = [s for s in scene.task.symbols if len(held[s.name]) > 1 or (s.init_args and s.axes)]
    return shared or [s for s in scene.task.symbols if held[s.name]]


def _natives(scene: Scene) -> list[int]:
    return sorted({symbol.native for symbol in scene.task.symbols})


def _holders(symbol: Symbol, floats: list[TensorSpec]) -> list[int]:
    """Which of the inputs that may hold the parts have the symbol for an axis."""
    paths = [spec.name for spec in floats[:DRAWS]]
    return [paths.index(path) for path, _ in symbol.axes if path in paths]


def _all_longer(
    scene: Scene, floats: list[TensorSpec], groups: list[list[Symbol]]
) -> Iterator[tuple[dict[str, int], int]]:
    base = dict(scene.discovery.base)
    for group in groups:
        holders = [n for symbol in group for n in _holders(symbol, floats)]
        if not holders:
            continue
        length = LENGTH
        while length > max(base[symbol.name] for symbol in group):
            sizes = merged(base, **{symbol.name: length for symbol in group})
            if _elements(scene, sizes) <= LARGEST:
                yield sizes, max(holders) if len(group) > 1 else holders[-1]
                break
            length //= 2


def _elements(scene: Scene, sizes: dict[str, int]) -> int:
    """Elements of all inputs at these sizes."""
    moved = {axis: sizes[s.name] for s in scene.task.symbols for axis in s.axes}
    return sum(
        prod(moved.get((spec.name, i), n) for i, n in enumerate(spec.shape))
        for spec in scene.task.inputs
    )


def _from_the_end(symbol: Symbol, floats: list[TensorSpec]) -> int:
    """How far the symbol's axes are from the last one, at least."""
    ranks = {spec.name: len(spec.shape) for spec in floats}
    return min((ranks[p] - axis for p, axis in symbol.axes if p in ranks), default=99)


def _is_float(spec: TensorSpec) -> bool:
    return spec.dtype.startswith(("float", "bfloat"))
