"""The error of a sum grows no faster with its length than its order allows."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from math import prod

from adjudge.contract import Contract, Finding, Kind, Outcome
from adjudge.gates.protocol import Evidence, Scene
from adjudge.gates.reading import decide_values, not_applicable
from adjudge.probe import Probe
from adjudge.task import merged

CONTRACT = Contract(
    identifier="order-bound",
    summary="loses precision faster than its sums grow longer",
    codes=("ORD-01", "C-ORD-01"),
    kind=Kind.DERIVED,
    cost=2,
    scope="Sizes that may vary, at the base point's, 4 times and 16 times as long. Extended, unless "
    "the declared sizes show it too.",
    precondition="The candidate is within its envelope at the base point.",
    postcondition="At every length the error stays within what sums of that length in some order can "
    "make.",
    tolerance="The error envelope of the reference at that length, which grows with it.",
    oracle="The reference in float64.",
    measurement="Positive values, which do not cancel, at n, 4n and 16n of each size in turn.",
    signature="An element beyond its bound by an error that rounding explains: a running total in a "
    "narrow type, a segment as the difference of two long prefix sums.",
)

FACTORS = (4, 16)
#: Sizes lengthened, and the most that one run may take up, in products of sizes.
MOST, LARGEST = 3, 1 << 18


def plan(scene: Scene) -> Iterable[Probe]:
    longer = list(_longer(scene))
    return (
        [scene.ordinary, replace(scene.ordinary, distribution="positive"), *longer]
        if longer
        else []
    )


def _longer(scene: Scene) -> Iterator[Probe]:
    base = dict(scene.discovery.base)
    # What moves no constructor argument lengthens no weight: such sizes come first.
    free = sorted(scene.task.symbols, key=lambda symbol: (bool(symbol.init_args), symbol.name))
    for symbol in free[:MOST]:
        for factor in FACTORS:
            sizes = merged(base, **{symbol.name: max(base[symbol.name], 1) * factor})
            if prod(max(1, n) for n in sizes.values()) <= LARGEST:
                yield replace(scene.ordinary, distribution="positive").at(sizes)


def decide(evidence: Evidence) -> Finding:
    longer = list(_longer(evidence.scene))
    if not longer:
        return not_applicable(CONTRACT, "no size of the task can be made longer here")
    finding = decide_values(CONTRACT, evidence, longer)
    if finding.outcome is not Outcome.PASS:
        return finding
    ratios = [
        f"{evidence.compare(p).rms:.2g}"
        for p in longer
        if p in evidence.observations and evidence.observations[p].answered
    ]
    return replace(finding, notes=(*finding.notes, f"error over envelope: {', '.join(ratios)}"))
