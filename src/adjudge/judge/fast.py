"""The first violation that counts, for whoever wants to know only whether there is one.

Runs are made in an order in which faults show soon, and only looked at for signs that are nearly free.
Where one shows, the gates decide on the runs that bear on it, as ever. If nothing is found so, the gates
are asked in turn, each on its own runs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import zip_longest
from math import prod

from adjudge.contract import Finding, Outcome
from adjudge.gates.protocol import Evidence, Gate, Scene
from adjudge.gates.reading import owner, reductions, unusual, weight
from adjudge.judge import shrink, signs
from adjudge.judge.docket import Docket, View
from adjudge.probe import Probe

#: Why a gate was not asked; a budget's words begin so too.
LEFT_OUT = "budget: another gate's violation came first"

#: Signs that lead to no conviction, after which they are trusted no more: a reference that answers noise
#: gives them everywhere.
MOST_IDLE = 8
#: Calls on one instance past which a run is dear, and how many times as large as at the base point.
FEW_CALLS, LARGER = 3, 4
#: Elements of inputs, outputs and weights of the references kept meanwhile (some 200 MB with what is
#: computed of them): the gates ask for them again.
KEPT_ELEMENTS = 1 << 21

Confirmed = Callable[[Docket, Gate, Evidence], Finding]


def first_violation(
    docket: Docket,
    gates: Iterable[Gate],
    confirmed: Confirmed,
    accepted: Callable[[Finding], bool],
) -> tuple[Finding, ...]:
    """The first violation that is not accepted, made small, behind those before it that are; or nothing,
    with the probes of every gate run.

    Args:
        confirmed: a gate's decision on some evidence, its convictions by a tolerance confirmed.
        accepted: whether a waiver accepts a violation.
    """
    ordered = sorted(gates, key=lambda g: g.CONTRACT.cost)
    scene = docket.scene
    each = scene.discovery.elements + sum(prod(spec.shape) for spec in scene.task.parameters)
    docket.keep(KEPT_ELEMENTS // max(each, 1))
    hunt = _Hunt(docket, ordered, confirmed, accepted)
    if hunt.convicts():
        return tuple(hunt.found)
    passed_over = hunt.found
    for g in ordered:
        if any(f.gate == _name(g) for f in passed_over):
            continue
        docket.run(g.plan(docket.scene))
        finding = confirmed(docket, g, docket)
        if finding.outcome is not Outcome.VIOLATION:
            continue
        finding = shrink.settle(docket, g, finding, frozenset(docket.observations))
        passed_over.append(finding)
        if not accepted(finding):
            return tuple(passed_over)
    return ()


class _Hunt:
    """The runs that show a sign, and what the gates make of them."""

    def __init__(
        self,
        docket: Docket,
        gates: list[Gate],
        confirmed: Confirmed,
        accepted: Callable[[Finding], bool],
    ) -> None:
        self._docket = docket
        self._gates = gates
        self._confirmed = confirmed
        self._accepted = accepted
        #: Runs that show a sign, in the order in which they were met.
        self._telling: dict[Probe, None] = {}
        self._seen: set[Probe] = set()
        self.found: list[Finding] = []

    def convicts(self) -> bool:
        """Whether a violation is found that is not accepted; it is the last of `found`."""
        # What the ordinary runs show by themselves needs no other.
        if self._asks_about(self._docket.scene.ordinary):
            return True
        ordered = in_turn(self._docket.scene, self._gates)
        for _ in range(MOST_IDLE):
            met = self._docket.search(ordered, self._is_news)
            if met is None:
                return False
            if self._asks_about(self._reduced(met)):
                return True
        return False

    def _is_news(self, probe: Probe) -> bool:
        """Whether the run shows a sign and was not looked at before."""
        if probe in self._seen:
            return False
        self._seen.add(probe)
        return signs.shows(self._docket, probe)

    def _reduced(self, probe: Probe) -> Probe:
        """The most ordinary probe reachable by single steps that all show a sign."""
        while True:
            self._telling[probe] = None
            self._seen.add(probe)
            simpler = list(reductions(self._docket.scene, probe))
            self._docket.run(simpler, look=None)
            found = next((p for p in simpler if signs.shows(self._docket, p)), None)
            if found is None:
                return probe
            probe = found

    def _asks_about(self, probe: Probe) -> bool:
        """Whether some gate convicts on the runs so far of what is not accepted: the cheap ones are
        asked first, then the one that the probe's fault belongs to."""
        scene, mine = self._docket.scene, owner(self._docket.scene, probe)
        if self._convicting(g for g in self._gates if not g.CONTRACT.cost):
            return True
        factors = unusual(scene, probe)
        if len(factors) > 1:
            # Which of them fails by itself is known only where each was seen.
            known = {_alone(scene, probe, factor) for factor in factors}
            self._meet(g for g in self._gates if _name(g) in known)
        return self._convicting(sorted(self._gates, key=lambda g: _name(g) != mine))

    def _convicting(self, gates: Iterable[Gate]) -> bool:
        """Whether one of the gates convicts of what is not accepted; it goes to `found`."""
        for g in gates:
            if any(f.gate == _name(g) for f in self.found):
                continue
            if self._confirmed(self._docket, g, self._view()).outcome is not Outcome.VIOLATION:
                continue
            # The gate's own runs, so that its evidence is the simplest that it has.
            self._meet([g])
            finding = self._confirmed(self._docket, g, self._view())
            if finding.outcome is not Outcome.VIOLATION:
                continue
            self.found.append(
                shrink.settle(self._docket, g, finding, frozenset(self._docket.observations))
            )
            if not self._accepted(self.found[-1]):
                return True
        return False

    def _meet(self, gates: Iterable[Gate]) -> None:
        """Makes the gates' runs, and notes those that show a sign."""
        for g in gates:
            planned = list(g.plan(self._docket.scene))
            self._docket.run(planned, look=None)
            for probe in planned:
                if self._is_news(probe):
                    self._reduced(probe)

    def _view(self) -> View:
        scene = self._docket.scene
        bearing = {scene.ordinary, *self._telling}
        bearing.update(p for probe in self._telling for p in reductions(scene, probe))
        if scene.native is not None:
            bearing.add(scene.native)
        return View(self._docket, scene, bearing)


def _name(g: Gate) -> str:
    return g.CONTRACT.identifier


def _alone(scene: Scene, probe: Probe, factor: str) -> str:
    """The gate to which one factor of the probe belongs."""
    others = [name for name in unusual(scene, probe) if name != factor]
    alone = probe.without([name for name in others if name != "sizes"])
    return owner(scene, alone.at(dict(scene.discovery.base)) if "sizes" in others else alone)


def in_turn(scene: Scene, gates: Iterable[Gate]) -> list[Probe]:
    """The probes of all gates in the order in which faults show soon: one of each plan in turn, the
    crossed ones among them, so that no kind of fault waits for another's plan; what is dear last."""
    plans = [list(g.plan(scene)) for g in gates]
    crossed = sorted(scene.crossed, key=weight)
    plans.append([p for probe in crossed for p in (probe.without(["fill", "history"]), probe)])
    probes = dict.fromkeys(p for turn in zip_longest(*plans) for p in turn if p is not None)
    return sorted(probes, key=lambda probe: _dearness(scene, probe))


def _dearness(scene: Scene, probe: Probe) -> int:
    """Runs in the order of what they take: small ones, then larger ones and long histories, then those
    that need a process or the declared sizes."""
    if probe.process or probe.sizes == scene.discovery.native != scene.discovery.base:
        return 2
    larger = _elements(probe) > LARGER * _elements(scene.ordinary)
    return int(larger or len(probe.history) > FEW_CALLS)


def _elements(probe: Probe) -> int:
    return prod(max(1, n) for _, n in probe.sizes)


def left_out(g: Gate) -> Finding:
    """The finding of a gate that was not asked."""
    return Finding(gate=g.CONTRACT.identifier, outcome=Outcome.NOT_APPLICABLE, reason=LEFT_OUT)
