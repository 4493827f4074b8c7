"""An answer depends on the call's own inputs, not on the calls before it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from adjudge.contract import Contract, Finding, Kind, Outcome, Violation
from adjudge.gates.protocol import Evidence, Scene
from adjudge.gates.reading import decide_bits, violated, weight
from adjudge.probe import Probe

CONTRACT = Contract(
    identifier="retains-state",
    summary="answers a call from an earlier one",
    kind=Kind.EXACT,
    scope="Sequences of calls on one instance, up to the 40th. A parameter changed between calls "
    "is extended, unless the task declares training.",
    precondition="The reference itself repeats its bits under the same sequence.",
    postcondition="The last call of a sequence gives the bits it gives alone; no output shares "
    "storage with an input (unless the reference's does) or with an earlier output still alive.",
    tolerance="None: bit equality.",
    oracle="The candidate's own answer to the same call made first.",
    measurement="The same call a second, 13th and 40th time; after a call with other content; "
    "after other content in the very same tensors; after a change of parameters. Earlier outputs "
    "are kept alive and looked at again.",
    signature="A call whose bits depend on its history, or an output that aliases.",
)

HISTORIES: tuple[tuple[str, ...], ...] = (
    ("same",),
    ("other",),
    ("same", "other"),
    ("in-place",),
    ("same",) * 12,
    ("same",) * 39,
)


#: Seconds that one history may take: a fault that waits for the 40th call is rarer than a slow kernel.
LONGEST = 2.0


def plan(scene: Scene) -> Iterable[Probe]:
    histories = [h for h in HISTORIES if len(h) <= 2 or len(h) * scene.discovery.seconds < LONGEST]
    if scene.task.parameters:
        histories.append(("parameter",))
    return [scene.ordinary, *(replace(scene.ordinary, history=history) for history in histories)]


def decide(evidence: Evidence) -> Finding:
    scene = evidence.scene
    ordinary = scene.ordinary
    finding = decide_bits(
        CONTRACT,
        evidence,
        [(probe.without(["history"]), probe) for probe in evidence.observations if probe.history],
        signature="history",
        message="the answer depends on calls made before",
    )
    if finding.outcome is Outcome.VIOLATION:
        return finding
    aliasing = _aliasing(evidence)
    if aliasing is not None:
        return violated(CONTRACT, evidence, aliasing, exact=True, probes=finding.probes)
    return finding if finding.probes else replace(finding, probes=int(ordinary is not None))


def _aliasing(evidence: Evidence) -> Violation | None:
    found: dict[Probe, str] = {}
    for probe, observation in evidence.observations.items():
        words = ""
        for output in observation.outputs:
            if output.aliases:
                words = f"output{output.path} shares storage with {output.aliases[0]}"
            elif output.aliases_previous:
                words = f"output{output.path} shares storage with an earlier output"
        if observation.earlier_output_changed:
            words = "an output handed out earlier was changed by a later call"
        # A copy that makes a tensor contiguous is none where it is so already.
        if words and not evidence.reference_aliases(probe):
            found[probe] = words
    if not found:
        return None
    probe = min(found, key=weight)
    return Violation(
        probe=probe,
        signature="alias",
        message=found[probe],
        bound="storage of its own",
        digests=evidence.observations[probe].digests,
    )
