"""Which probes of a plan are left out, so that no kernel is compiled more than a few times.

On a GPU most of a verdict is compilation. Triton compiles a kernel anew for each dtype, for arguments
that 16 divides and that it does not, for arguments that are one, and for each value of a compile-time
constant. Probes that are alike in all of that make a class; the classes that say most of the candidate
are run, the others are not. What decides is the plan and one ordinary run, never what a candidate
compiles later: one that compiles afresh at each call would else be asked nothing any more.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

from adjudge.gates.protocol import Scene
from adjudge.probe import Probe

#: Classes that are run of one candidate, outside of the deep mode. Over sixty kernels of a corpus six
#: classes held 108 of 150 probes and compiled a kernel 5.4 times, where all of them compiled it 19.5
#: times (means; the interpreter's record of launches that were not run).
MOST = 6

#: Layouts that move no pointer and no stride, by those sixty kernels.
_PLAIN_LAYOUTS = ("offset", "expanded", "overlapping")
_DIVISOR = 16

Class = tuple[object, ...]


class Few:
    """The classes of probes that are run.

    Args:
        scene: what was planned on.
        plans: the probes of each gate, most telling first; each gate counts as much as any other.
        always: probes whose classes are among those that are run, however many they are.
        most: how many classes there may be.
    """

    def __init__(
        self,
        scene: Scene,
        plans: Iterable[Sequence[Probe]],
        always: Iterable[Probe],
        most: int = MOST,
    ) -> None:
        self._base = dict(scene.discovery.base)
        self._constants = {n for launch in scene.discovery.launches for _, n in launch.constants}
        self._chosen = set(map(self.class_of, always))
        weights = self._weights(plans)
        for kind in sorted(weights, key=lambda kind: (-weights[kind], repr(kind))):
            if len(self._chosen) < most:
                self._chosen.add(kind)

    def _weights(self, plans: Iterable[Sequence[Probe]]) -> Mapping[Class, float]:
        """How much each class is asked for: a gate's first probe counts one, its n-th one n-th."""
        weights: dict[Class, float] = defaultdict(float)
        for plan in plans:
            for rank, probe in enumerate(p for p in plan if p.config < 0):
                weights[self.class_of(probe)] += 1 / (1 + rank)
        return weights

    def has(self, probe: Probe) -> bool:
        """Whether the probe is run. Autotune configurations, which have a limit of their own, are
        forced on the ordinary run, and gradients are other kernels at the same arguments."""
        return self.class_of(probe) in self._chosen

    def class_of(self, probe: Probe) -> Class:
        """What probably decides for which arguments the kernels of a run are compiled."""
        layout = "contiguous" if probe.layout in _PLAIN_LAYOUTS else probe.layout
        sizes = tuple(self._kind(name, size) for name, size in probe.sizes)
        return sizes, probe.dtype, layout

    def _kind(self, name: str, size: int) -> Class:
        base = self._base.get(name, 0)
        if not size:
            # Most candidates launch nothing there, and it is where sums over nothing show.
            size = base
        kind = (size == 1, size % _DIVISOR == 0)
        if base > 1 and base in self._constants:
            # The size, or the power of two that holds it, seems to be a compile-time constant.
            return *kind, (size - 1).bit_length()
        return kind


def tails(scene: Scene, plan: Iterable[Probe]) -> list[Probe]:
    """The first probe of a plan for each dimension that ends in a part of a block: no verdict leaves
    those out."""
    base = dict(scene.discovery.base)
    found: dict[str, Probe] = {}
    for probe in plan:
        for name, size in probe.sizes:
            if size > base[name] and size % _DIVISOR and not probe.factors:
                found.setdefault(name, probe)
    return list(found.values())
