"""Violations that hang on what the process did before: they are the fault of kept state, whichever gate
came upon them."""

from __future__ import annotations

from dataclasses import replace

from adjudge.contract import Finding, Outcome, Scope, Violation
from adjudge.gates.reading import difference
from adjudge.judge.docket import Docket
from adjudge.observation import Observation
from adjudge.probe import Probe

STATE, CHANCE = "retains-state", "nondeterministic"


def attributed(docket: Docket, findings: tuple[Finding, ...]) -> tuple[Finding, ...]:
    """The findings, each violation seen again in a process of its own.

    One that does not show there is no fault of the gate that found it. If fresh processes agree with
    each other, earlier calls have left something behind; if they do not, chance explains the
    difference, and the finding stands. It also stands where the gate of kept state was not asked:
    nothing may be taken from one gate that no other one answers for.
    """
    if any(f.gate == CHANCE and f.violation is not None for f in findings):
        return findings
    if all(f.gate != STATE for f in findings):
        return findings
    settled, evidence, scope = [], None, Scope.EXTENDED
    for finding in findings:
        leak = _leak(docket, finding)
        if leak is None:
            settled.append(finding)
            continue
        evidence = evidence or leak
        if finding.scope is Scope.DECLARED:
            scope = Scope.DECLARED
        settled.append(
            Finding(
                gate=finding.gate,
                outcome=Outcome.INCONCLUSIVE,
                reason=f"shows only after other calls in the same process: see {STATE}",
                probes=finding.probes,
            )
        )
    if evidence is None:
        return findings
    return tuple(_convicted(f, evidence, scope) if f.gate == STATE else f for f in settled)


def _leak(docket: Docket, finding: Finding) -> Violation | None:
    """The evidence, if a run that the finding rests on gives other bytes in two fresh processes that
    agree: its own, or one that it was compared with."""
    violation = finding.violation
    if violation is None or not violation.digests or finding.gate == STATE:
        return None
    probe = violation.probe
    for rests_on in (probe, *(probe.without([name]) for name in probe.factors)):
        seen = docket.observations.get(rests_on)
        if seen is None or not seen.answered:
            continue
        if docket.scene.runner == "cuda":
            # A process for each costs a context, and those are opened one after another: where one
            # that has run other things agrees, none is asked for.
            elsewhere = docket.again(rests_on)
            if elsewhere is not None and elsewhere.digests == seen.digests:
                continue
        one = docket.fresh(rests_on)
        if one is None or not one.answered or one.digests == seen.digests:
            continue
        other = docket.fresh(rests_on)
        if other is not None and other.digests == one.digests:
            return _evidence(rests_on, seen, one)
    return None


def _evidence(probe: Probe, seen: Observation, fresh: Observation) -> Violation:
    # One line replays one run, and this takes those before it: there is none.
    return difference(
        fresh,
        seen,
        probe,
        signature="state",
        message="answers otherwise once other calls, on other instances, were made in its process",
        bound="bit equality with a fresh process",
    )


def _convicted(finding: Finding, evidence: Violation, scope: Scope) -> Finding:
    """The finding on kept state, in the widest scope of what it stands for."""
    if finding.violation is not None:
        return replace(finding, scope=scope) if scope is Scope.DECLARED else finding
    return Finding(
        gate=STATE,
        outcome=Outcome.VIOLATION,
        reason=evidence.message,
        scope=scope,
        exact=True,
        violation=evidence,
        probes=finding.probes,
        runner=finding.runner,
        seconds=finding.seconds,
    )
