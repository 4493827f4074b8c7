"""The answer does not hang on the configuration, nor on which program instance comes first."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from adjudge.contract import Contract, Finding, Kind, Outcome, Violation
from adjudge.gates.protocol import Evidence, Scene
from adjudge.gates.reading import bit_violation, decide_values, same_bits, violated, weight
from adjudge.probe import Probe

CONTRACT = Contract(
    identifier="schedule-dependent",
    summary="answers otherwise under another configuration, or when program instances overlap",
    codes=("ORD-03", "C-CMP-02"),
    kind=Kind.EXACT_OR_DERIVED,
    scope="Candidates that launch kernels: their autotune configurations, and what instances of one "
    "launch read of what others write.",
    precondition="The candidate answers on the ordinary run.",
    postcondition="Every configuration gives the same classes of value and the same values within "
    "the envelope; no instance reads what another one of the same launch writes, unless an atomic "
    "orders the two.",
    tolerance="None for overlapping instances; the error envelope between configurations.",
    oracle="The reference in float64; for overlaps, the candidate's own serial run.",
    measurement="Up to four configurations, extremes first. In the interpreter, one run in which no "
    "instance sees what another one writes: a lost update shows in no serial order.",
    signature="A configuration whose answer is wrong; or a load that raced with a store, by kernel "
    "and line, and the element that differs.",
)

#: Configurations tried; the extremes of a list differ most.
MOST = 4


def plan(scene: Scene) -> Iterable[Probe]:
    probes = [scene.ordinary]
    probes += [replace(scene.ordinary, config=number) for number in chosen(scene)]
    if scene.discovery.uses_kernels and scene.runner == "interpret":
        probes.append(replace(scene.ordinary, schedule="simultaneous"))
    return probes


def chosen(scene: Scene) -> list[int]:
    """Configurations to try: both ends, then inwards. The first one is the ordinary run's."""
    count = scene.discovery.configs
    inwards = [n for pair in zip(range(count), reversed(range(count)), strict=True) for n in pair]
    return [n for n in dict.fromkeys(inwards) if n][: MOST - 1]


def decide(evidence: Evidence) -> Finding:
    racing = _racing(evidence)
    probes = len(list(plan(evidence.scene)))
    if racing is not None:
        return violated(CONTRACT, evidence, racing, exact=True, probes=probes)
    finding = decide_values(CONTRACT, evidence, plan(evidence.scene))
    if finding.outcome is not Outcome.PASS:
        return finding
    return replace(finding, notes=(*finding.notes, *_notes(evidence)))


def _racing(evidence: Evidence) -> Violation | None:
    """The simplest run in which overlapping instances change the answer."""
    found = []
    for probe, observation in evidence.observations.items():
        plain = probe.without(["schedule"])
        serial = evidence.observations.get(plain)
        if probe.schedule != "simultaneous" or serial is None or not observation.races:
            continue
        both = serial.answered and observation.answered
        if both and not same_bits(serial, observation):
            found.append(probe)
    if not found:
        return None
    probe = min(found, key=weight)
    race = evidence.observations[probe].races[0]
    one, other = race.instances
    message = (
        f"instance {other} of {race.kernel} reads at line {race.line} what instance {one} writes, "
        "and nothing orders the two"
    )
    plain = probe.without(["schedule"])
    return bit_violation(evidence, plain, probe, signature="race", message=message)


def _notes(evidence: Evidence) -> Iterable[str]:
    scene = evidence.scene
    if scene.discovery.configs > MOST:
        yield f"{MOST} of {scene.discovery.configs} configurations tried"
    harmless = sum(len(o.races) for o in evidence.observations.values())
    if harmless:
        yield f"{harmless} overlapping accesses that change no answer"
