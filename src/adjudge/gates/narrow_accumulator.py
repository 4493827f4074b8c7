"""Sums are kept, and factors are read, in the declared precision."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

from adjudge.contract import Contract, Finding, Kind
from adjudge.gates.drifting import drifting
from adjudge.gates.losing import GAPPED, control_of, diluted, swamped, trials
from adjudge.gates.protocol import Comparison, Evidence, Scene
from adjudge.gates.reading import (
    baseline_unusable,
    compared_violation,
    not_applicable,
    passed,
    violated,
    weight,
)
from adjudge.inputs.levels import DRIFTS, GAPS, LATTICES, PARTS
from adjudge.probe import Probe

CONTRACT = Contract(
    identifier="narrow-accumulator",
    summary="keeps sums, or reads factors, in less precision than is required",
    codes=("PRC-02", "C-PRC-01"),
    kind=Kind.EXACT_OR_DERIVED,
    scope="Tasks with float inputs.",
    precondition="The reference answers; the candidate answers on the ordinary run.",
    postcondition="Sums that float32 holds exactly in any order come out exactly; elsewhere no error "
    "exceeds what some order of sums in the required regime can reach.",
    tolerance="None on the lattice. In the gap test, the worst case over all orders, which every "
    "narrow accumulator or operand exceeds. Else the envelope of the required regime.",
    oracle="The reference in float64.",
    measurement="Integers of 13 significant bits against small ones, and the reverse, parameters "
    "drawn alike: products and sums are exact in float32, not in float16, bfloat16 or tf32. Positive "
    "values of 13 bits, whose lost bits add up. In half precision, values of which a running sum drops "
    "the same share, and a large part taken away again, with a little before and after that a sum "
    "rounded in between, once a term or once a block, loses. And the precision grade of the ordinary "
    "runs.",
    signature="A sum that differs from its exact value; the grade that is met instead.",
)


def plan(scene: Scene) -> Iterable[Probe]:
    return list(_probes(scene))


def _probes(scene: Scene) -> Iterator[Probe]:
    if not any(spec.dtype.startswith(("float", "bfloat")) for spec in scene.task.inputs):
        return
    yield scene.ordinary
    if scene.native is not None:
        # Whether a grade below the required one shows at the declared shape.
        yield scene.native
    weights = "lattice" if scene.task.parameters else "seeded"
    for name in LATTICES:
        yield replace(scene.ordinary, distribution=name, weights=weights)
    for name in GAPS:
        yield replace(scene.ordinary, distribution=name)
    yield from _in_half(scene)


def _in_half(scene: Scene) -> list[Probe]:
    """For tasks in half precision, which the lattice is too wide for."""
    native = sorted({spec.dtype for spec in scene.task.inputs})
    drifts = [probe for dtype in native for probe in drifting(scene, dtype, native=True)]
    if not drifts:
        return []
    parts = [probe for trial in trials(scene) for probe in trial]
    weights = [probe for one in diluted(scene) if not one.together for probe in one.shown]
    return [*drifts, *parts, *swamped(scene), *weights]


def decide(evidence: Evidence) -> Finding:
    planned = list(_probes(evidence.scene))
    if not planned:
        return not_applicable(CONTRACT, "the task has no float input")
    unusable = baseline_unusable(CONTRACT, evidence, evidence.scene.ordinary)
    if unusable is not None:
        return unusable
    below = evidence.below_required()
    if below is not None and below.gate != CONTRACT.identifier:
        below = None
    exact = 0
    found: dict[Probe, Comparison] = {}
    for probe, observation in evidence.observations.items():
        if not observation.answered:
            continue
        comparison = _compared(evidence, probe, below is not None)
        exact += comparison is not None and comparison.exact
        if comparison is not None and comparison.broken:
            found[probe] = comparison
    if found and (below is not None or evidence.compare(evidence.scene.ordinary).ok):
        probe = min(found, key=lambda p: (not found[p].exact, weight(p)))
        violation = replace(
            compared_violation(probe, evidence.observations[probe], found[probe]),
            signature="narrow",
            message=_words(evidence, found[probe]),
        )
        finding = violated(CONTRACT, evidence, violation, exact=True, probes=len(planned))
        return replace(finding, scope=below.scope) if below is not None else finding
    if below is not None:
        return below
    reason = f"{exact} runs with exact sums; the ordinary runs meet {evidence.grade}"
    return passed(CONTRACT, reason, probes=exact + 1)


def _compared(evidence: Evidence, probe: Probe, below: bool) -> Comparison | None:
    """What one run says of sums and factors; None if nothing.

    Args:
        below: the candidate is below the required grade. Else what lies outside a gap is another fault:
            values of one sign cancel in a variance.
    """
    kind = probe.distribution
    control = control_of(probe)
    if control is not None and (control == probe or not _holds(evidence, control)):
        return None
    if kind in LATTICES or kind in PARTS.values():
        exactly = evidence.compare_exact(probe)
        if exactly is not None:
            return exactly
    if kind in DRIFTS.values() and probe in _in_half(evidence.scene):
        drifted = evidence.compare(probe)
        return drifted if drifted.outcome == "value" else None
    if kind in GAPPED:
        beyond = evidence.compare_gap(probe)
        return beyond if beyond.outcome == "value" and beyond.beyond_worst_case else None
    if below and (control is not None or kind in (*LATTICES, *GAPS)):
        beyond = evidence.compare_required(probe)
        return beyond if beyond.outcome == "value" and beyond.beyond_worst_case else None
    return None


def _holds(evidence: Evidence, probe: Probe) -> bool:
    """Whether nothing is wrong where nothing can be lost."""
    if probe not in evidence.observations or not evidence.observations[probe].answered:
        return False
    comparison = evidence.compare_exact(probe) or evidence.compare(probe)
    return comparison.ok


def _words(evidence: Evidence, comparison: Comparison) -> str:
    what = (
        "sums that float32 holds exactly in any order come out otherwise"
        if comparison.exact
        else "the error is larger than any order of sums in the required precision can make"
    )
    return f"{what}: the precision met is {evidence.grade}"
