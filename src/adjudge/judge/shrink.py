"""Makes a violation small: the least sizes that still show it, and the scope it truly has."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import replace

from adjudge.contract import Finding, Scope, Violation
from adjudge.gates.losing import GAPPED, control_of
from adjudge.gates.protocol import Gate
from adjudge.gates.reading import State, state
from adjudge.inputs.codec import encode_recipe
from adjudge.judge import declared
from adjudge.judge.docket import Docket, View
from adjudge.probe import Probe, Sizes
from adjudge.task import merged, short_digest

#: Runs that shrinking one violation may cost.
TRIALS = 40
#: Sizes that must have been tried before "at every size" means anything.
FEW = 3
#: Gates that share the failures at other sizes.
_BY_SIZE = ("shape-dependent", "order-bound")
#: Signatures of violations that stay on the run they were found on: what the machine code of a kernel as
#: that run launched it asks of a chip.
_FIXED = ("excess", "spills")
#: The signature of a grade below the required one, which is that of two ordinary runs at one base.
_GRADE = "precision"
#: Points at which a grade is settled anew before it stays where it was found: each takes as many runs as
#: the first did.
_SETTLED = 3


def settle(docket: Docket, gate: Gate, finding: Finding, known: Collection[Probe]) -> Finding:
    """The finding on the smallest probe found, with its scope and its replay line.

    Args:
        known: runs that were made before any violation was made smaller.
    """
    if finding.violation is None:
        return finding
    finding = _promoted(docket, gate, finding, known)
    if finding.violation is not None and finding.violation.signature == _GRADE:
        finding = _graded(docket, finding)
    elif finding.violation is not None and finding.violation.signature not in _FIXED:
        # From here on the finding is what `still` gives, which is what a replay will ask for.
        finding = _adopted(finding, _again(docket, gate, finding.violation.probe))
        assert finding.violation is not None
        if finding.violation.probe.distribution not in GAPPED:
            # What is lost there is seen for its sum's length alone.
            finding = _smaller(docket, gate, finding)
    assert finding.violation is not None
    return replace(finding, violation=replace(finding.violation, replay=_line(docket, finding)))


def still(docket: Docket, gate: Gate, probe: Probe, base: Probe) -> Finding | None:
    """The gate's violation on this probe, judged from `base`, or None.

    If a more ordinary probe of the same sizes is convicted too, the finding is on that one.
    """
    scene = replace(docket.scene, discovery=replace(docket.scene.discovery, base=base.sizes))
    if gate.CONTRACT.identifier in _BY_SIZE:
        # Fewer runs are looked at here than those that told the two apart.
        scene = replace(scene, by_size=gate.CONTRACT.identifier)
    companions = {probe, base, Probe(sizes=probe.sizes), *_baselines(probe)}
    control = control_of(probe)
    if control is not None:
        companions.add(control)
    by_shape = gate.CONTRACT.identifier == "shape-dependent"
    if by_shape and probe == base and scene.native is not None:
        # A failure at the base itself is a matter of shape only if the declared shape is clean.
        companions.add(scene.native)
    docket.run(companions, limited=False)
    found = declared.decide(gate, View(docket, scene, companions))
    violation = found.violation
    if violation is None or violation.probe.sizes != probe.sizes:
        return None
    if violation.signature == "value" and not docket.confirm(violation.probe).broken:
        return None
    return found


def _again(docket: Docket, gate: Gate, probe: Probe) -> Finding | None:
    return still(docket, gate, probe, _base_for(docket, gate, probe))


def _adopted(finding: Finding, found: Finding | None) -> Finding:
    """The evidence of `found` in the finding of the whole verdict; `finding` if there is none."""
    if found is None:
        return finding
    return replace(found, scope=finding.scope, probes=finding.probes)


def _baselines(probe: Probe) -> Iterator[Probe]:
    for name in probe.factors:
        yield probe.without([name])


def _base_for(docket: Docket, gate: Gate, probe: Probe) -> Probe:
    """Faults of size are judged from the candidate's own base; all others at the probe's sizes."""
    if gate.CONTRACT.identifier in _BY_SIZE:
        return docket.scene.ordinary
    return Probe(sizes=probe.sizes)


def _promoted(docket: Docket, gate: Gate, finding: Finding, known: Collection[Probe]) -> Finding:
    """Declared, if the same fault shows at the native point with nothing else unusual.

    Where the native point is out of reach, a fault at every size that was tried counts as one there: but
    for outputs of another shape. A program with the native sizes written into it is wrong at all others.
    """
    assert finding.violation is not None
    native = docket.scene.discovery.native
    if finding.scope is Scope.DECLARED:
        return finding
    if native is None:
        # Where training is declared, a plain gradient is as ordinary as a plain answer.
        kind = finding.violation.probe.cotangent if docket.scene.task.declared.training else "none"
        plain = not finding.violation.probe.without(["cotangent"] if kind != "none" else []).factors
        written = _of_shape_alone(finding.violation)
        everywhere = plain and not written and _fails_everywhere(docket, kind, known)
        return replace(finding, scope=Scope.DECLARED) if everywhere else finding
    probe = replace(finding.violation.probe, sizes=native)
    if not docket.scene.is_declared(probe):
        return finding
    if still(docket, gate, probe, Probe(sizes=native)) is None:
        return finding
    return replace(finding, scope=Scope.DECLARED)


def _of_shape_alone(violation: Violation) -> bool:
    """Whether an output's dtype is right and its shape is not."""
    if violation.signature != "metadata":
        return False
    expected, got = (text.partition("[") for text in (violation.expected, violation.got))
    return bool(expected[1] and got[1]) and expected[0] == got[0]


def _fails_everywhere(docket: Docket, cotangent: str, known: Collection[Probe]) -> bool:
    ordinary = [p for p in known if p.cotangent == cotangent]
    plain = [p for p in ordinary if not p.without(["cotangent"]).factors]
    broken = {p.sizes for p in plain if state(docket, p) is State.BROKEN}
    clean = {p.sizes for p in plain if state(docket, p) is State.CLEAN and _substantial(p)}
    return len(broken) >= FEW and not clean


def _substantial(probe: Probe) -> bool:
    """Empty and one-element dimensions are answered rightly by many wrong programs."""
    return all(size > 1 for _, size in probe.sizes)


def _smaller(docket: Docket, gate: Gate, finding: Finding) -> Finding:
    """Greedy: each symbol in turn takes the least size at which the violation still shows."""
    trials = 0
    assert finding.violation is not None
    for symbol, _ in finding.violation.probe.sizes:
        probe = finding.violation.probe
        for trial in _smaller_probes(probe, symbol):
            if trials >= TRIALS:
                return finding
            if not docket.admits(trial):
                continue
            trials += 1
            found = _again(docket, gate, trial)
            if found is not None:
                finding = _adopted(finding, found)
                break
    return finding


def _graded(docket: Docket, finding: Finding) -> Finding:
    """The finding of a grade at the least sizes at which it is settled as the same one.

    Whether errors are beyond the required regime and within the loosest is seen from one run; what is
    narrow then shows on runs of their own, which are made only at the smallest points found.
    """
    assert finding.violation is not None
    met: list[Probe] = []
    probe, trials = finding.violation.probe, 0
    for symbol, _ in probe.sizes:
        for trial in _smaller_probes(probe, symbol):
            if trials >= TRIALS:
                break
            if not docket.admits(trial):
                continue
            trials += 1
            if _below(docket, trial):
                probe = trial
                met.append(probe)
                break
    for smaller in [*reversed(met)][:_SETTLED]:
        found = _regraded(docket, smaller.sizes, finding.gate)
        if found is not None and found.reason == finding.reason:
            return _adopted(finding, found)
    return finding


def _below(docket: Docket, probe: Probe) -> bool:
    """Whether an ordinary run is beyond the required regime by no more than rounding explains."""
    docket.run([probe], limited=False)
    observation = docket.observations.get(probe)
    if observation is None or not observation.answered or not docket.compare(probe).ok:
        return False
    return docket.compare_required(probe).outcome == "value"


def _regraded(docket: Docket, sizes: Sizes, gate: str) -> Finding | None:
    """The finding of a grade settled from runs at a base of those sizes, as a replay does it; None if
    the candidate is not below the required one there."""
    scene = replace(docket.scene, discovery=replace(docket.scene.discovery, base=sizes))
    other = Docket(
        scene,
        docket.builder,
        docket.runner,
        required=docket.required,
        deadline=docket.deadline,
        asked=(gate,),
    )
    other.few = docket.few
    other.run([scene.ordinary, replace(scene.ordinary, seed=1)])
    other.settle_grade()
    found = other.below_required()
    if found is None or found.violation is None:
        return None
    return found if (found.gate, found.violation.signature) == (gate, _GRADE) else None


def _smaller_probes(probe: Probe, symbol: str) -> Iterator[Probe]:
    """The probe with one symbol smaller; a fault may need a value that only another seed draws."""
    for size in _sizes_below(probe.size(symbol)):
        smaller = probe.at(merged(dict(probe.sizes), **{symbol: size}))
        yield from dict.fromkeys((smaller, replace(smaller, seed=0), replace(smaller, seed=1)))


def _sizes_below(size: int) -> Iterator[int]:
    small = [n for n in (1, 2, 3, 4, 5, 8, 9, 16, 17, 33, 65) if n < size]
    yield from small
    half = (size + 1) // 2
    if half > 65:
        yield half


def _line(docket: Docket, finding: Finding) -> str:
    assert finding.violation is not None
    probe = finding.violation.probe
    gate_base = probe.sizes
    if finding.gate in _BY_SIZE:
        gate_base = docket.scene.discovery.base
    return encode_recipe(
        {
            "gate": finding.gate,
            "probe": probe,
            "base": gate_base,
            "regime": docket.regime if finding.violation.signature != _GRADE else docket.required,
            "required": docket.required,
            "outputs": [digest[:16] for digest in finding.violation.digests],
            "task": short_digest(docket.scene.task.source),
            "inputs": docket.input_digests.get(probe, "")[:16],
        }
    )
