"""The right gradient of every input and parameter, for every cotangent."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from adjudge.contract import Contract, Finding, Kind, Outcome, Violation
from adjudge.gates.protocol import Evidence, Scene
from adjudge.gates.reading import (
    State,
    baseline_unusable,
    broken_probes,
    decide_values,
    first_line,
    inconclusive,
    not_applicable,
    state,
    value_violation,
    violated,
    weight,
)
from adjudge.gates.schedule_dependent import chosen
from adjudge.inputs import levels
from adjudge.inputs.ranks import at_other_ranks
from adjudge.observation import COTANGENTS, Observation, Status
from adjudge.probe import Probe

CONTRACT = Contract(
    identifier="wrong-gradient",
    summary="gives another gradient than the reference",
    codes=("CMP-02",),
    kind=Kind.EXACT_OR_DERIVED,
    cost=2,
    scope="Gradients of every floating-point input and of every parameter, matched by name or by the "
    "bytes that the seed gives it; those that match neither way are named. Declared where the task "
    "declares training (an input of it requires gradients), else extended.",
    precondition="The reference is differentiable there, the forward answer is right, and the "
    "candidate offers gradients (autograd around no kernel, a function of its own, or an explicit "
    "backward) or the task declares training.",
    postcondition="For any cotangent, however it lies in memory, every gradient lies within the "
    "error that an honest backward pass can make; none is missing where training is declared; a "
    "second pass through one graph gives the same.",
    tolerance="The error envelope of the decomposed forward and backward pass on this very input; "
    "never narrower than the native reference's own error. Elements that hang on a choice which "
    "rounding decides (a kink, a tie) are left out.",
    oracle="Autograd of the reference in float64.",
    measurement="Random, one-hot, zero, expanded (stride 0), sliced and transposed cotangents, and "
    "two passes through one graph; each at the base point, and random ones under other layouts, "
    "sizes, fills and autotune configurations, after other calls, and with inputs of rank 2 to 4 where "
    "their leading dimensions are a batch to the reference.",
    signature="An element of a gradient beyond its bound, or a gradient that is missing.",
)

#: Fields of `task.Declared` that this gate judges by.
READS = ("training",)

#: The first probe, by which it is known whether the candidate has gradients at all.
FIRST = "random"
#: Crossed probes of which a gradient is asked: several kinds at sizes and layouts off the base.
MOST_CROSSED = 6


def plan(scene: Scene) -> Iterable[Probe]:
    ordinary = scene.ordinary
    first = replace(ordinary, cotangent=FIRST)
    if not scene.discovery.differentiable:
        return []
    if not scene.owes_gradients:
        return [first]
    kinds = [kind for kind in levels.COTANGENTS if kind != "none"]
    probes = [replace(ordinary, cotangent=kind) for kind in kinds]
    ranked = at_other_ranks(scene.task, ordinary, scene.native)
    probes += [replace(probe, cotangent=FIRST) for probe in ranked]
    probes += [replace(first, fill="nan"), replace(first, history=("same",))]
    probes += [replace(first, layout=layout) for layout in ("sliced", "transposed")]
    if scene.task.parameters:
        probes.append(replace(first, weights="redrawn"))
    probes += [replace(first, config=number) for number in chosen(scene)]
    crossed = [p for p in scene.crossed if p.special == "none" and p.sizes != ordinary.sizes]
    for number, probe in enumerate(crossed[:MOST_CROSSED]):
        plain = replace(probe, history=(), fill="zero", distribution="declared")
        probes.append(replace(plain, cotangent=kinds[number % len(kinds)]))
    if scene.native is not None:
        probes.append(replace(scene.native, cotangent=FIRST))
    return probes


def decide(evidence: Evidence) -> Finding:
    scene = evidence.scene
    first = replace(scene.ordinary, cotangent=FIRST)
    if not scene.discovery.differentiable:
        unusable = baseline_unusable(CONTRACT, evidence, scene.ordinary)
        return unusable or not_applicable(CONTRACT, "the reference has no gradient")
    baseline = state(evidence, scene.ordinary)
    if baseline is State.BROKEN:
        return not_applicable(CONTRACT, "baseline fails: the ordinary run is already wrong")
    if scene.task.declared.training:
        missing = _missing(evidence) or _raising(evidence, first)
        if missing is not None:
            return violated(CONTRACT, evidence, missing, exact=True, probes=1)
    elif not scene.owes_gradients:
        return _not_offered(evidence.observations.get(first))
    failing = broken_probes(evidence, CONTRACT.identifier)
    if failing:
        # The plainest cotangent that fails tells most.
        probe = min(failing, key=_plainness)
        violation, exact = value_violation(evidence, probe)
        return violated(CONTRACT, evidence, violation, exact=exact, probes=len(failing))
    finding = decide_values(CONTRACT, evidence, plan(scene))
    if finding.outcome is not Outcome.PASS:
        return finding
    return replace(finding, notes=(*finding.notes, *_notes(evidence)))


def _not_offered(observation: Observation | None) -> Finding:
    if observation is not None and observation.raised is not None:
        raised = f"{observation.raised.type}: {first_line(observation.raised.message)}"
        words = f"its backward pass raises {raised}"
    elif observation is not None and not observation.answered:
        return inconclusive(CONTRACT, observation.ending or "the backward pass did not answer")
    elif observation is None or not observation.backward:
        words = "the candidate has no gradient"
    else:
        words = "its kernels have no backward"
    return not_applicable(CONTRACT, f"{words}, and the task declares no training")


def _notes(evidence: Evidence) -> Iterable[str]:
    strange = evidence.scene.discovery.unasked
    if strange:
        words = "names of them are" if len(strange) > 1 else "name of it is"
        yield f"not asked for {', '.join(strange[:5])}: the candidate's {words} not known"
    asked = {p: o for p, o in evidence.observations.items() if p.cotangent != "none" and o.answered}
    unasked = sorted({name for o in asked.values() for name in o.missing})
    if unasked:
        yield f"no gradient for {', '.join(unasked[:5])}; the task declares no training"
    kinks = sum(evidence.compare(probe).excluded for probe in asked)
    if kinks:
        yield f"{kinks} elements hang on a kink or a tie that rounding decides, and were left out"
    if any(n.startswith(COTANGENTS) for o in asked.values() for n in o.mutated_inputs):
        yield "the backward pass writes over the cotangent that it is given"


def _plainness(probe: Probe) -> tuple[int, int, tuple[int, int, str]]:
    return (len(probe.factors), levels.COTANGENTS.index(probe.cotangent), weight(probe))


def _raising(evidence: Evidence, probe: Probe) -> Violation | None:
    """An exception where an ordinary gradient is asked for, and the forward pass alone answers."""
    observation = evidence.observations.get(probe)
    forward = evidence.observations.get(evidence.scene.ordinary)
    if observation is None or observation.status is not Status.RAISED:
        return None
    if forward is None or not forward.answered:
        return None
    return value_violation(evidence, probe)[0]


def _missing(evidence: Evidence) -> Violation | None:
    """A gradient that the reference has and the candidate has not, on the plainest such run."""
    found = [p for p, o in evidence.observations.items() if o.answered and o.missing]
    if not found:
        return None
    probe = min(found, key=_plainness)
    observation = evidence.observations[probe]
    names = observation.missing
    return Violation(
        probe=probe,
        signature="missing",
        message=f"no gradient for {', '.join(names[:5])}",
        where=f"grad {names[0]}",
        expected="a gradient",
        got="None",
        bound="presence",
        affected=len(names),
        total=len(names) + len(observation.outputs),
        digests=observation.digests,
    )
