"""The crossed probes: every pair of levels of every two factors appears in one of them."""

from __future__ import annotations

from dataclasses import replace

from adjudge.inputs.boundaries import boundary_sizes
from adjudge.inputs.covering import cover
from adjudge.probe import Probe, sizes_of
from adjudge.task import Discovery, Task, merged

#: Levels of each factor in the covering array: those that hide faults from one-factor sweeps most
#: often in the wild (odd shape x strided input, masked row x large logits, empty group x poison).
_DISTRIBUTIONS = ("declared", "normal-3", "ties", "offset")
_SPECIALS = ("none", "nan@last", "-inf@row", "huge@any")
_LAYOUTS = ("contiguous", "sliced", "transposed", "misaligned", "side-sliced")
_FILLS = ("zero", "nan", "finite")
_HISTORIES: tuple[tuple[str, ...], ...] = ((), ("other",), ("in-place",))
#: Sizes per symbol: the base itself, one, an odd width past one block and a small odd one.
_SIZES_PER_SYMBOL = 4


def crossed(task: Task, discovery: Discovery) -> tuple[Probe, ...]:
    """The covering array for one candidate, each row a probe."""
    base = dict(discovery.base)
    factors: dict[str, tuple[object, ...]] = {
        "distribution": _DISTRIBUTIONS,
        "special": _SPECIALS,
        "layout": _LAYOUTS,
        "fill": _FILLS,
        "history": _HISTORIES,
    }
    for symbol in task.symbols:
        factors[f"size:{symbol.name}"] = _sizes(symbol, discovery, base[symbol.name])
    kinds = {spec.dtype for spec in task.inputs}
    if not any(kind.startswith(("float", "bfloat")) for kind in kinds):
        factors["special"] = ("none",)
    if all(kind.startswith(("float", "bfloat")) for kind in kinds):
        factors["layout"] = tuple(name for name in _LAYOUTS if name != "side-sliced")
    rows = cover(factors, strength=2, seed=0)
    probes = []
    for number, row in enumerate(rows):
        sizes = {**base, **{k[5:]: v for k, v in row.items() if k.startswith("size:")}}
        levels = {k: v for k, v in row.items() if not k.startswith("size:")}
        probe = replace(Probe(sizes=sizes_of(sizes), seed=1000 + number), **levels)
        probes.append(probe)
    return (*probes, *_empty(task, base))


def _empty(task: Task, base: dict[str, int]) -> list[Probe]:
    """Each dimension empty over poisoned memory: a sum over nothing must still be written.

    Kept out of the array, where an empty row would be the only one of many of its pairs.
    """
    names = [symbol.name for symbol in task.symbols if not symbol.init_args]
    return [Probe(sizes=sizes_of(merged(base, **{name: 0})), fill="nan") for name in names]


def _sizes(symbol: object, discovery: Discovery, base: int) -> tuple[int, ...]:
    boundary = boundary_sizes(symbol, discovery.blocks, max(base * 2 + 1, 40))  # type: ignore[arg-type]
    odd = [n for n in boundary if n % 2 and 1 < n < 3 * base]
    chosen = [base, 1, *odd[-1:], *odd[:1]]
    return tuple(dict.fromkeys(chosen))[:_SIZES_PER_SYMBOL]
