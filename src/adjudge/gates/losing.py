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
from adjudge.inputs.levels import ALONE, DILUTED, PARTS, STEPS, SWAMPED
from adjudge.probe import Probe
from adjudge.task import Symbol, TensorSpec, merged

#: A sum so long is one of two blocks of 256, the largest that kernels take at once; a power of two, so
#: that a mean over it is exact. It is halved while the inputs have more elements than that: a square
#: product of half the length takes the interpreter half a second.
LENGTH, LARGEST = 512, 1 << 17
#: Of the small squares of so many, one in 64 loses a root of their sum 20 percent, one in 256 six; 40
#: and 4 where 11 bits are needed to lose them, or 10 and 3.
SWAMPED_LENGTH, MOST_SWAMPED = 1 << 15, 1 << 20
#: Keys that a sum of weights is made of, and where all sizes are long together; in bfloat16, a part of
#: 11 bits shows only in so many. And scores that one run may have.
KEYS, KEYS_TOGETHER, KEYS_IN_EIGHT, SCORES = 2048, 1024, 8192, 1 << 21
#: Sizes that are made so long, one at a time, and float inputs that may hold the parts.
MOST, DRAWS = 3, 3
#: Bits that the three sums need.
CONTROL, EIGHT, ELEVEN = 4, 9, 12

_LEVELS = {name: key for key, name in PARTS.items()}
_WEIGHTS = {name: key for key, name in DILUTED.items()}
#: Runs on which an honest answer is not exact, and one that has lost something lies beyond what the
#: roundings of half precision come to together.
GAPPED = (*SWAMPED, *DILUTED.values())


class Trial(NamedTuple):
    control: Probe
    eight: Probe
    eleven: Probe


class Weighing(NamedTuple):
    trial: Trial
    #: The runs of it that show whether anything is lost: in bfloat16, what a sum of 11 bits loses is
    #: seen only among many keys, and what one of 8 loses among few.
    shown: tuple[Probe, ...]
    #: Queries are made as long as the keys, for references that do not show the weights otherwise.
    together: bool = False


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
    """For sums of squares of a single input beside weights, the axis of which that they go with, or the
    last, is made long: one block after the other is lost, and the answer shows that in half precision
    too. The control comes first."""
    first, *others = scene.task.inputs or [None]
    if first is None or not _is_float(first) or not first.shape:
        return []
    if any(len(spec.shape) != 1 for spec in (*others, *scene.task.parameters)):
        return []
    last = (first.name, len(first.shape) - 1)
    own = [s for s in scene.task.symbols if any(path == first.name for path, _ in s.axes)]
    along = [s for s in own if s.init_args] or [s for s in own if last in s.axes]
    for symbol in along[:1]:
        sizes = merged(dict(scene.discovery.base), **{symbol.name: SWAMPED_LENGTH})
        if _elements(scene, sizes) <= MOST_SWAMPED:
            weights = "ones" if scene.task.parameters else "seeded"
            long = replace(scene.ordinary, weights=weights).at(sizes)
            return [replace(long, distribution=name) for name in (ALONE, *SWAMPED)]
    return []


def diluted(scene: Scene) -> list[Weighing]:
    """For sums of weights, the largest of which is 1: those of a softmax of the only input, or of the
    keys in attention, which are made long alone and together with the queries."""
    floats = [spec for spec in scene.task.inputs if _is_float(spec)]
    symbols = [s for s in scene.task.symbols if not s.init_args]
    if len(floats) == 1 and floats[0].shape:
        along = [s for s in symbols if (floats[0].name, len(floats[0].shape) - 1) in s.axes]
        return _alone(scene, floats, along[0], 0) if along else []
    if len(floats) < DRAWS or any(len(spec.shape) < 2 for spec in floats[:DRAWS]):
        return []
    queries, keys, values = ([s for s in symbols if _is_inner(s, spec)] for spec in floats[:DRAWS])
    summed = [s for s in keys if s in values]
    alone = [s for s in summed if s not in queries]
    if alone:
        like = [s for s in queries if s.native == alone[0].native]
        together = [alone[0], *like[-1:]] if like else []
    else:
        # Not a batch, nor its heads.
        together = sorted(summed, key=lambda s: s.native)[-1:]
    found = _alone(scene, floats, alone[0], 1) if alone else []
    if together:
        for trial in _of_weights(scene, floats, together, KEYS_TOGETHER, 1):
            found.append(Weighing(trial, _shown(trial, floats), together=bool(alone)))
    return found


def _shown(trial: Trial, floats: list[TensorSpec]) -> tuple[Probe, ...]:
    """In float32, weights that 11 bits lose are less than what factors of 8 come to."""
    if floats[0].dtype == "float16":
        return (trial.eleven,)
    return trial.eleven, trial.eight


def _alone(scene: Scene, floats: list[TensorSpec], along: Symbol, draw: int) -> list[Weighing]:
    short = _of_weights(scene, floats, [along], KEYS, draw)
    if floats[0].dtype != "bfloat16":
        return [Weighing(trial, _shown(trial, floats)) for trial in short]
    long = _of_weights(scene, floats, [along], KEYS_IN_EIGHT, draw)
    return [
        *(Weighing(trial, (trial.eight,)) for trial in short),
        *(Weighing(trial, (trial.eleven,)) for trial in long),
    ]


def _of_weights(
    scene: Scene, floats: list[TensorSpec], along: list[Symbol], length: int, draw: int
) -> list[Trial]:
    base = dict(scene.discovery.base)
    weights = "ones" if scene.task.parameters else "seeded"
    while length >= LENGTH:
        sizes = merged(base, **{s.name: max(length, base[s.name]) for s in along})
        shapes = [_shape(scene, spec, sizes) for spec in floats]
        # As many as there are queries, for each key.
        scores = prod(shapes[0][:-1]) * length if draw else prod(shapes[0])
        if scores <= SCORES:
            plain = replace(scene.ordinary, weights=weights).at(sizes)
            bits = (CONTROL, EIGHT, ELEVEN)
            return [Trial(*(replace(plain, distribution=DILUTED[n, draw]) for n in bits))]
        length //= 2
    return []


def _is_inner(symbol: Symbol, spec: TensorSpec) -> bool:
    """Whether the symbol is an axis of the input, but not that of its features."""
    return any(path == spec.name and axis < len(spec.shape) - 1 for path, axis in symbol.axes)


def control_of(probe: Probe) -> Probe | None:
    """The probe of the same trial on which nothing is lost; None for one that is no trial's."""
    if probe.distribution in (*STEPS, *SWAMPED, ALONE):
        return replace(probe, distribution=ALONE)
    if probe.distribution in _WEIGHTS:
        return replace(probe, distribution=DILUTED[CONTROL, _WEIGHTS[probe.distribution][1]])
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
    return sum(prod(_shape(scene, spec, sizes)) for spec in scene.task.inputs)


def _shape(scene: Scene, spec: TensorSpec, sizes: dict[str, int]) -> list[int]:
    moved = {axis: sizes[s.name] for s in scene.task.symbols for axis in s.axes}
    return [moved.get((spec.name, i), n) for i, n in enumerate(spec.shape)]


def _from_the_end(symbol: Symbol, floats: list[TensorSpec]) -> int:
    """How far the symbol's axes are from the last one, at least."""
    ranks = {spec.name: len(spec.shape) for spec in floats}
    return min((ranks[p] - axis for p, axis in symbol.axes if p in ranks), default=99)


def _is_float(spec: TensorSpec) -> bool:
    return spec.dtype.startswith(("float", "bfloat"))
