"""The probe on which a running sum of half precision drifts away from its exact value."""

from __future__ import annotations

from math import prod

from adjudge.gates.protocol import Scene
from adjudge.inputs.levels import DRIFTS
from adjudge.probe import Probe
from adjudge.task import merged

#: Sizes from which on a symbol is taken to be summed over, how much longer it is made, since a drift
#: grows with the length, and the most that one run may take up, in products of sizes.
_LONG, _FACTOR, _LARGEST = 32, 2, 1 << 18


def drifting(scene: Scene, dtype: str, native: bool) -> list[Probe]:
    """One probe, or none where `dtype` is not of half precision.

    Args:
        native: the task itself is in `dtype`.
    """
    if dtype not in DRIFTS:
        return []
    base = dict(scene.discovery.base)
    longer = {name: size * _FACTOR for name, size in base.items() if size >= _LONG}
    sizes = merged(base, **longer)
    if prod(max(1, n) for n in sizes.values()) > _LARGEST:
        sizes = base
    given = "native" if native else dtype
    return [Probe(dtype=given, distribution=DRIFTS[dtype]).at(sizes)]
