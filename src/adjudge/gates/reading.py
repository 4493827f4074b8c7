"""How gates read probes: the state of one, which of two probes is simpler, and whose fault it is.

One bug is one conviction. A probe that fails with several unusual factors is reduced, one factor at
a time, to the smallest set that still fails; the gate that owns what is left gets the conviction.
The judge runs the reductions that are missing (`reductions`), so that `decide` stays pure.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from enum import StrEnum
from math import prod

from adjudge.contract import Contract, Finding, Outcome, Scope, Violation
from adjudge.gates.protocol import Comparison, Evidence, Scene
from adjudge.inputs.levels import (
    ALONE,
    CANCELLING,
    DILUTED,
    DRIFTS,
    GAPS,
    LATTICES,
    PARTS,
    STEPS,
    SUBNORMAL,
    SUMS,
    SWAMPED,
    TENS,
)
from adjudge.observation import FINAL, Observation, Status
from adjudge.probe import Probe

#: Which gate a failure belongs to when these factors are what makes it fail; first match wins, so
#: that the rarer condition is named (a NaN at an odd width is a NaN's problem).
OWNERS: tuple[tuple[str, str], ...] = (
    ("guard", "out-of-bounds"),
    ("fill", "stale-output"),
    ("history", "retains-state"),
    ("schedule", "nondeterministic"),
    ("process", "nondeterministic"),
    ("repeat", "nondeterministic"),
    ("cotangent", "wrong-gradient"),
    ("config", "schedule-dependent"),
    ("special", "drops-nonfinite"),
    ("dtype", "dtype-regime"),
    ("layout", "layout-dependent"),
    # Rows that are wrong alone are wrong at that shape; only their bits are another gate's.
    ("batch", "shape-dependent"),
    ("rank", "shape-dependent"),
    ("sizes", "shape-dependent"),
    ("distribution", "wrong-value"),
    ("weights", "wrong-value"),
)
#: What shows only in sums that are long enough.
LOSING = (*PARTS.values(), *STEPS, *SWAMPED, ALONE, *DILUTED.values())
#: Levels that belong to another gate than the rest of their factor.
_LEVELS: dict[tuple[str, str], str] = {
    **{("distribution", name): "cancellation" for name in CANCELLING},
    **{
        ("distribution", name): "narrow-accumulator"
        for name in (*LATTICES, *GAPS, *SUMS, *DRIFTS.values(), *LOSING, *TENS)
    },
    **{("distribution", name): "flushes-subnormal" for name in SUBNORMAL},
    ("schedule", "simultaneous"): "schedule-dependent",
    ("weights", "lattice"): "narrow-accumulator",
    ("weights", "ones"): "narrow-accumulator",
}


class State(StrEnum):
    CLEAN = "clean"
    BROKEN = "broken"
    REFUSED = "refused"
    #: Our side, or the runner's, could not tell.
    UNDECIDED = "undecided"
    #: Planned and not run.
    MISSING = "missing"


#: Endings that leave no answer and are nobody's fault but the candidate's.
_FATAL = {Status.CRASHED, Status.UNREADABLE}
#: Seconds of an ordinary run below which a run of the same size that takes the patient limit (sixty
#: times as much; the docket gives it) hangs.
QUICK = 0.5
#: Endings that `tampers` owns: the process that loaded the candidate broke off or broke the protocol.
ESCAPES = {Status.EXITED, Status.MALFORMED}


def state(evidence: Evidence, probe: Probe) -> State:
    """What one probe says about values, by itself."""
    observation = evidence.observations.get(probe)
    if observation is None:
        return State.MISSING
    if observation.status in _FATAL:
        return State.BROKEN
    if observation.status is Status.RAISED:
        return State.BROKEN if _must_answer(evidence.scene, probe) else State.REFUSED
    if observation.status is Status.HUNG and owes_quickness(evidence, probe):
        return State.BROKEN
    if not observation.answered:
        return State.UNDECIDED
    comparison = evidence.compare(probe)
    if comparison.ok:
        return State.CLEAN
    return State.BROKEN if comparison.broken else State.UNDECIDED


def _must_answer(scene: Scene, probe: Probe) -> bool:
    """A refusal is an exception away from the native point; at it, there is nothing to refuse."""
    plain = not probe.without(["cotangent", "rank"]).factors
    ordinary = plain and probe.cotangent in ("none", "random")
    return scene.is_declared(probe) and ordinary


def owes_quickness(evidence: Evidence, probe: Probe) -> bool:
    """Whether no answer within the limit is the candidate's doing and not a slow runner's: it answers
    as large an input at once where nothing is unusual."""
    scene = evidence.scene
    ordinary = evidence.observations.get(scene.ordinary)
    return (
        ordinary is not None
        and ordinary.answered
        and ordinary.seconds < QUICK
        and probe.sizes == scene.ordinary.sizes
        and not probe.history
    )


def unusual(scene: Scene, probe: Probe) -> tuple[str, ...]:
    """The factors of `probe` that are not at their ordinary level, in the order of OWNERS."""
    names = set(probe.factors)
    if probe.sizes != scene.discovery.base:
        names.add("sizes")
    ordered = [name for name, _ in OWNERS if name in names]
    return tuple(ordered) + tuple(sorted(names.difference(ordered)))


def owner(scene: Scene, probe: Probe) -> str:
    """The gate to which a failure of this (reduced) probe belongs."""
    names = unusual(scene, probe)
    if names and names[0] == "sizes" and probe.distribution in (*DRIFTS.values(), *LOSING):
        # A drift grows with the length of the sum, and a block needs another: the size is harmless.
        return _owner_of(probe, "distribution")
    return _owner_of(probe, names[0]) if names else "wrong-value"


def _owner_of(probe: Probe, factor: str) -> str:
    """The gate of one factor, at the level that the probe has it."""
    if factor == "special" and probe.special.startswith("scaled:"):
        return "scale-variant"
    level = (factor, str(getattr(probe, factor, "")))
    return _LEVELS.get(level) or dict(OWNERS).get(factor, "wrong-value")


def reductions(scene: Scene, probe: Probe) -> Iterator[Probe]:
    """The probes that are one factor more ordinary than `probe`."""
    for name in unusual(scene, probe):
        if name == "sizes":
            yield replace(probe, sizes=scene.discovery.base)
        else:
            yield probe.without([name])


Predicate = Callable[[Probe], bool]


def reduced(scene: Scene, probe: Probe, fails: Predicate) -> Probe:
    """The most ordinary probe reachable from `probe` by single steps that all still fail."""
    while True:
        simpler = next((p for p in reductions(scene, probe) if fails(p)), None)
        if simpler is None:
            return probe
        probe = simpler


def weight(probe: Probe) -> tuple[int, int, str]:
    """Order of simplicity: fewer factors, then fewer elements, then a fixed order."""
    return (len(probe.factors), prod(max(1, n) for _, n in probe.sizes), repr(probe))


def broken_probes(evidence: Evidence, gate: str) -> list[Probe]:
    """Reduced failing probes that belong to `gate`, simplest first.

    Where the ordinary run fails already, every failure is its failure.
    """
    scene = evidence.scene
    if state(evidence, scene.ordinary) is State.BROKEN:
        only_here = state(evidence, scene.native or scene.ordinary) is State.CLEAN
        mine = gate == ("shape-dependent" if only_here else "wrong-value")
        return [scene.ordinary] if mine and not _is_metadata(evidence, scene.ordinary) else []

    def fails(probe: Probe) -> bool:
        return state(evidence, probe) is State.BROKEN

    found = {
        reduced(evidence.scene, probe, fails) for probe in evidence.observations if fails(probe)
    }
    found = {
        p for p in found if not _is_metadata(evidence, p) and not _explained(evidence, p, found)
    }
    return sorted((p for p in found if _belongs(evidence, p, gate)), key=weight)


def _belongs(evidence: Evidence, probe: Probe, gate: str) -> bool:
    """An error that rounding explains, and that has grown with the sizes, is not one of shape."""
    found = owner(evidence.scene, probe)
    if found == "shape-dependent" and evidence.rounding_explains(probe):
        by_growth = "order-bound" if _grew(evidence, probe) else found
        found = evidence.scene.by_size or by_growth
    return found == gate


def _grew(evidence: Evidence, probe: Probe) -> bool:
    """Whether an error shows at no smaller sizes than the base point's, and does not vanish at larger
    ones than the probe's."""
    scene = evidence.scene
    if not no_smaller(probe, scene.ordinary):
        return False
    larger = (p for p in evidence.observations if p != probe and no_smaller(p, probe))
    return not any(
        state(evidence, p) is State.CLEAN
        for p in larger
        if set(p.factors) <= {"distribution", "seed"} and p.distribution in ("declared", "positive")
    )


def no_smaller(probe: Probe, other: Probe) -> bool:
    """Whether no size of `probe` is smaller than in `other`."""
    sizes = dict(probe.sizes)
    return all(sizes.get(name, size) >= size for name, size in other.sizes)


def _explained(evidence: Evidence, probe: Probe, failing: set[Probe]) -> bool:
    """Whether one of the probe's several unusual factors is known to fail by itself elsewhere."""
    factors = unusual(evidence.scene, probe)
    if len(factors) < 2:
        return False
    alone = [p for p in failing if p != probe and len(unusual(evidence.scene, p)) == 1]
    known = {owner(evidence.scene, p) for p in alone}
    return any(_owner_of(probe, name) in known for name in factors)


def _is_metadata(evidence: Evidence, probe: Probe) -> bool:
    observation = evidence.observations[probe]
    return observation.answered and evidence.compare(probe).outcome == "metadata"


def scope_of(scene: Scene, probe: Probe) -> Scope:
    return Scope.DECLARED if scene.is_declared(probe) else Scope.EXTENDED


def passed(contract: Contract, reason: str, *, probes: int, notes: Iterable[str] = ()) -> Finding:
    return Finding(
        gate=contract.identifier,
        outcome=Outcome.PASS,
        reason=reason,
        probes=probes,
        notes=tuple(notes),
    )


def not_applicable(contract: Contract, reason: str) -> Finding:
    return Finding(gate=contract.identifier, outcome=Outcome.NOT_APPLICABLE, reason=reason)


def inconclusive(contract: Contract, reason: str, *, probes: int = 0) -> Finding:
    return Finding(
        gate=contract.identifier, outcome=Outcome.INCONCLUSIVE, reason=reason, probes=probes
    )


def violated(
    contract: Contract, evidence: Evidence, violation: Violation, *, exact: bool, probes: int
) -> Finding:
    return Finding(
        gate=contract.identifier,
        outcome=Outcome.VIOLATION,
        reason=violation.message,
        scope=scope_of(evidence.scene, violation.probe),
        exact=exact,
        violation=violation,
        probes=probes,
    )


def value_violation(evidence: Evidence, probe: Probe) -> tuple[Violation, bool]:
    """Evidence that `probe` fails by its value (or by not answering), and whether it is exact."""
    observation = evidence.observations[probe]
    if not observation.answered:
        return _no_answer(probe, observation), True
    c = evidence.compare(probe)
    return compared_violation(probe, observation, c), c.exact


def compared_violation(probe: Probe, observation: Observation, c: Comparison) -> Violation:
    """What a comparison that failed says, as evidence."""
    return Violation(
        probe=probe,
        signature=c.outcome,
        message=_message(c),
        where=c.where,
        index=c.index,
        expected=c.expected,
        got=c.got,
        bound=c.bound,
        excess=c.excess or None,
        affected=c.affected,
        total=c.total,
        beyond_worst_case=c.beyond_worst_case,
        digests=observation.digests,
    )


def _message(c: Comparison) -> str:
    words = c.reason or _sentence(c)
    if not c.where.startswith(FINAL):
        return words
    name = c.where.removeprefix(FINAL)
    return f"{name} does not hold what the reference leaves in it: {words}"


def _no_answer(probe: Probe, observation: Observation) -> Violation:
    if observation.raised is not None:
        raised = observation.raised
        words = raised.complaint or first_line(raised.message)
        message = f"raised {raised.type} instead of answering: {words}"
        return Violation(probe=probe, signature="raised", message=message, where=raised.phase)
    if observation.status is Status.UNREADABLE:
        message = f"returned something that is not tensors: {observation.ending}"
        return Violation(probe=probe, signature="unreadable", message=message)
    if observation.status is Status.HUNG:
        message = f"hangs where the ordinary run answers at once: {observation.ending}"
        return Violation(probe=probe, signature="hung", message=message)
    message = f"the process died: {observation.ending}"
    return Violation(probe=probe, signature="crashed", message=message)


def _sentence(c: Comparison) -> str:
    if c.outcome == "class":
        return f"{c.affected} of {c.total} elements are of another class (NaN, infinite, finite)"
    if c.exact:
        return f"{c.affected} of {c.total} elements differ"
    return f"{c.affected} of {c.total} elements lie beyond the error an honest kernel can make"


def first_line(text: str, limit: int = 200) -> str:
    line = text.strip().splitlines()[0] if text.strip() else ""
    return line if len(line) <= limit else line[: limit - 1] + "…"


def decide_values(contract: Contract, evidence: Evidence, planned: Iterable[Probe]) -> Finding:
    """The finding of a gate whose offence shows in the value of single probes."""
    failing = broken_probes(evidence, contract.identifier)
    probes = list(dict.fromkeys(planned))
    if failing:
        violation, exact = value_violation(evidence, failing[0])
        return violated(contract, evidence, violation, exact=exact, probes=len(probes))
    states = {probe: state(evidence, probe) for probe in probes}
    clean = [p for p, s in states.items() if s is State.CLEAN]
    refused = [p for p, s in states.items() if s is State.REFUSED]
    undecided = [p for p, s in states.items() if s is State.UNDECIDED]
    if clean:
        notes = []
        if refused:
            notes.append(f"{len(refused)} of {len(probes)} probes were refused with a clear error")
        if undecided:
            notes.append(f"{len(undecided)} of {len(probes)} probes could not be decided")
        over = [p for p in probes if evidence.skipped.get(p, "").startswith("budget")]
        if over:
            notes.append(f"{len(over)} of {len(probes)} probes did not fit in the time budget")
        return passed(
            contract, f"{len(clean)} probes within bounds", probes=len(clean), notes=notes
        )
    return _nothing_clean(contract, evidence, states, refused)


def _nothing_clean(
    contract: Contract, evidence: Evidence, states: dict[Probe, State], refused: list[Probe]
) -> Finding:
    baseline = state(evidence, evidence.scene.ordinary)
    if baseline is State.BROKEN:
        return not_applicable(contract, "baseline fails: the ordinary run is already wrong")
    if refused:
        raised = evidence.observations[refused[0]].raised
        words = "an error"
        if raised:
            words = f"{raised.type}: {raised.complaint or first_line(raised.message)}"
        return Finding(
            gate=contract.identifier,
            outcome=Outcome.REFUSAL,
            reason=f"refuses all {len(refused)} probes, with {words}",
            scope=Scope.EXTENDED,
            probes=len(refused),
        )
    undecided = next((p for p, s in states.items() if s is State.UNDECIDED), None)
    if undecided is not None:
        return inconclusive(contract, undecided_reason(evidence, undecided), probes=len(states))
    skipped = [evidence.skipped[p] for p in states if p in evidence.skipped]
    if skipped:
        return not_applicable(contract, skipped[0])
    return not_applicable(contract, "the task gives this gate nothing to vary")


def undecided_reason(evidence: Evidence, probe: Probe) -> str:
    observation = evidence.observations[probe]
    if observation.status is Status.HUNG:
        return observation.ending or "no answer within the time limit of this runner"
    if observation.status is Status.UNSUPPORTED:
        return "; ".join(observation.notes) or "the runner lacks what the candidate needs"
    if observation.status in ESCAPES:
        return f"no answer to judge: {observation.ending}"
    return evidence.compare(probe).reason or "the oracle could not decide"


def baseline_unusable(contract: Contract, evidence: Evidence, baseline: Probe) -> Finding | None:
    """Why an exact gate cannot compare against `baseline`, or None if it can.

    The value need not be right (that is `wrong-value`'s matter): it must exist.
    """
    observation = evidence.observations.get(baseline)
    if observation is None:
        reason = evidence.skipped.get(baseline, "the ordinary run was not made")
        return not_applicable(contract, reason)
    if observation.answered:
        return None
    if observation.status in (Status.HUNG, Status.UNSUPPORTED):
        return inconclusive(contract, undecided_reason(evidence, baseline))
    return not_applicable(contract, "baseline fails: the ordinary run gives no answer")


def same_bits(one: Observation, other: Observation) -> bool:
    same = one.structure == other.structure and one.digests == other.digests
    if one.state and other.state:
        return same and one.state_digests == other.state_digests
    return same


def first_difference(one: Observation, other: Observation) -> tuple[str, tuple[int, ...], str, str]:
    """(output's name, index, value in `one`, value in `other`) at the first differing element."""
    import numpy as np

    left_behind = [(*o.outputs, *o.finals, *o.state) for o in (one, other)]
    for a, b in zip(*left_behind, strict=False):
        if a.data.shape != b.data.shape or a.dtype != b.dtype:
            return a.name, (), f"{a.dtype}{list(a.data.shape)}", f"{b.dtype}{list(b.data.shape)}"
        left = np.ascontiguousarray(a.data).reshape(-1)
        right = np.ascontiguousarray(b.data).reshape(-1)
        raw = left.view(np.uint8).reshape(left.size, -1) != right.view(np.uint8).reshape(
            right.size, -1
        )
        differing = np.flatnonzero(raw.any(axis=1)) if left.size else np.empty(0, dtype=np.int64)
        if differing.size:
            flat = int(differing[0])
            index = (
                tuple(int(i) for i in np.unravel_index(flat, a.data.shape)) if a.data.ndim else ()
            )
            return a.name, index, shown(left[flat]), shown(right[flat])
    return "output", (), one.structure, other.structure


def shown(value: object) -> str:
    """A number as a report prints it: enough digits to tell neighbours in float32 apart."""
    try:
        return f"{float(value):.9g}"  # type: ignore[arg-type]
    except (TypeError, ValueError):
        return str(value)


def bit_violation(
    evidence: Evidence, baseline: Probe, probe: Probe, *, signature: str, message: str
) -> Violation:
    """Evidence that two runs which owe each other equality differ."""
    one, other = evidence.observations[baseline], evidence.observations[probe]
    return difference(one, other, probe, signature=signature, message=message)


def difference(
    one: Observation,
    other: Observation,
    probe: Probe,
    *,
    signature: str,
    message: str,
    bound: str = "bit equality",
) -> Violation:
    """Evidence that `other`, the observation of `probe`, is not what it owes: the answer `one`."""
    where, index, expected, got = first_difference(one, other)
    return Violation(
        probe=probe,
        signature=signature,
        message=message,
        where=where,
        index=index,
        expected=expected,
        got=got,
        bound=bound,
        digests=other.digests,
    )


def decide_bits(
    contract: Contract,
    evidence: Evidence,
    pairs: Iterable[tuple[Probe, Probe]],
    *,
    signature: str,
    message: str,
) -> Finding:
    """The finding of a gate that demands bit equality of each (baseline, perturbed) pair.

    Where the native reference's own bits move under the same perturbation, the envelope decides in
    place of equality, and the finding says so.
    """
    decided, yielded, undecided = 0, 0, ""
    exact_failures: list[Probe] = []
    other_failures: list[Probe] = []
    baselines: dict[Probe, Probe] = {}
    unusable: Finding | None = None
    for baseline, probe in pairs:
        unusable = unusable or baseline_unusable(contract, evidence, baseline)
        observation = evidence.observations.get(probe)
        if observation is None or not _answered(evidence, baseline):
            continue
        baselines[probe] = baseline
        if not observation.answered:
            if state(evidence, probe) is State.BROKEN:
                other_failures.append(probe)
            elif observation.status is not Status.RAISED:
                undecided = undecided_reason(evidence, probe)
            continue
        if same_bits(evidence.observations[baseline], observation):
            decided += 1
        elif evidence.reference_moves(baseline, probe):
            yielded += 1
            if state(evidence, probe) is State.BROKEN and _clean(evidence, baseline):
                other_failures.append(probe)
        else:
            exact_failures.append(probe)
    if exact_failures:
        probe = min(exact_failures, key=weight)
        violation = bit_violation(
            evidence, baselines[probe], probe, signature=signature, message=message
        )
        return violated(contract, evidence, violation, exact=True, probes=len(baselines))
    if other_failures:
        violation, exact = value_violation(evidence, min(other_failures, key=weight))
        return violated(contract, evidence, violation, exact=exact, probes=len(baselines))
    if decided or yielded:
        notes = [f"{yielded} pairs judged by the envelope: the reference's own bits move there"]
        return passed(
            contract,
            f"{decided} pairs of runs are bit-identical",
            probes=decided + yielded,
            notes=notes if yielded else (),
        )
    if unusable is not None:
        return unusable
    if undecided:
        return inconclusive(contract, undecided)
    return not_applicable(contract, "no pair of runs could be made")


def _answered(evidence: Evidence, probe: Probe) -> bool:
    observation = evidence.observations.get(probe)
    return observation is not None and observation.answered


def _clean(evidence: Evidence, probe: Probe) -> bool:
    return state(evidence, probe) is State.CLEAN
