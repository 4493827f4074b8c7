"""Decisions of the gates of precision, schedule and resources, on observations made by hand."""

from __future__ import annotations

from dataclasses import replace

import pytest
from fakes import LAUNCH, WITHIN, WRONG, FakeEvidence, answer, scene

from adjudge.contract import Finding, Outcome, Scope, Violation
from adjudge.gates import (
    bypasses_kernel,
    cancellation,
    dtype_regime,
    flushes_subnormal,
    narrow_accumulator,
    order_bound,
    resource_excess,
    scale_variant,
    schedule_dependent,
    shape_dependent,
    wrong_value,
)
from adjudge.gates.protocol import Comparison
from adjudge.observation import Demand, Race
from adjudge.task import Declared, Resources

RACE = Race(kernel="k", tensor="out", line=7, instances=(0, 1))
UNEQUAL = Comparison(outcome="value", exact=True, affected=1, total=2)


@pytest.fixture
def evidence() -> FakeEvidence:
    found = FakeEvidence(scene(discovery={"configs": 7}))
    found.put(found.scene.ordinary, answer(1.0, 2.0, launches=(LAUNCH,)))
    return found


def below(evidence: FakeEvidence) -> Finding:
    violation = Violation(
        probe=evidence.scene.ordinary, signature="precision", message="meets only bf16xfp32"
    )
    return Finding(
        gate="narrow-accumulator",
        outcome=Outcome.VIOLATION,
        reason=violation.message,
        violation=violation,
    )


def test_configurations_are_tried_from_both_ends(evidence: FakeEvidence) -> None:
    assert schedule_dependent.chosen(evidence.scene) == [6, 1, 5]
    wrong = replace(evidence.scene.ordinary, config=6)
    evidence.put(wrong, answer(1.0, 3.0), WRONG)
    finding = schedule_dependent.decide(evidence)
    assert finding.violation is not None
    assert finding.violation.probe == wrong
    assert wrong_value.decide(evidence).outcome is not Outcome.VIOLATION


def test_a_race_convicts_where_it_changes_the_answer(evidence: FakeEvidence) -> None:
    overlapping = replace(evidence.scene.ordinary, schedule="simultaneous")
    evidence.put(overlapping, answer(1.0, 2.0, races=(RACE,)))
    harmless = schedule_dependent.decide(evidence)
    assert harmless.outcome is Outcome.PASS
    assert "1 overlapping accesses that change no answer" in harmless.notes
    evidence.put(overlapping, answer(1.0, 9.0, races=(RACE,)))
    finding = schedule_dependent.decide(evidence)
    assert finding.outcome is Outcome.VIOLATION
    assert finding.exact
    assert "line 7" in finding.reason


def test_a_wrong_answer_in_another_dtype_is_extended(evidence: FakeEvidence) -> None:
    evidence.put(replace(evidence.scene.ordinary, dtype="bfloat16"), answer(1.0, 3.0), WRONG)
    finding = dtype_regime.decide(evidence)
    assert finding.outcome is Outcome.VIOLATION
    assert finding.scope is Scope.EXTENDED


def test_sums_that_any_order_gives_convict_exactly(evidence: FakeEvidence) -> None:
    lattice = replace(evidence.scene.ordinary, distribution="lattice")
    evidence.put(lattice, answer(1.0, 3.0), WRONG)
    evidence.owed[lattice] = UNEQUAL
    finding = narrow_accumulator.decide(evidence)
    assert finding.outcome is Outcome.VIOLATION
    assert finding.exact
    assert wrong_value.decide(evidence).outcome is not Outcome.VIOLATION


def test_the_gap_convicts_only_below_the_required_grade(evidence: FakeEvidence) -> None:
    gap = replace(evidence.scene.ordinary, distribution="gap")
    evidence.put(gap, answer(1.0, 3.0))
    evidence.required[gap] = replace(WRONG, beyond_worst_case=True)
    assert narrow_accumulator.decide(evidence).outcome is Outcome.PASS
    evidence.below = below(evidence)
    finding = narrow_accumulator.decide(evidence)
    assert finding.violation is not None
    assert finding.violation.probe == gap
    assert finding.exact


def test_a_grade_below_the_required_one_convicts_by_itself(evidence: FakeEvidence) -> None:
    evidence.below = below(evidence)
    finding = narrow_accumulator.decide(evidence)
    assert finding.reason == "meets only bf16xfp32"
    assert not finding.exact


def test_cancelling_values_have_their_own_gate(evidence: FakeEvidence) -> None:
    evidence.put(replace(evidence.scene.ordinary, distribution="offset"), answer(1.0, 3.0), WRONG)
    assert cancellation.decide(evidence).outcome is Outcome.VIOLATION
    assert wrong_value.decide(evidence).outcome is not Outcome.VIOLATION


@pytest.mark.parametrize(
    ("degree", "got", "comparison", "outcome"),
    [
        (1, 2.0**25, WRONG, Outcome.PASS),
        (1, 3.0, WITHIN, Outcome.PASS),
        (1, 3.0, WRONG, Outcome.VIOLATION),
        (None, 3.0, WRONG, Outcome.NOT_APPLICABLE),
    ],
)
def test_scaled_answers(
    evidence: FakeEvidence, degree: int | None, got: float, comparison: Comparison, outcome: Outcome
) -> None:
    evidence.degree = degree
    scaled = replace(evidence.scene.ordinary, special="scaled:24@0")
    evidence.put(scaled, answer(2.0**24, got), comparison)
    assert scale_variant.decide(evidence).outcome is outcome


def test_float32_may_flush_and_float16_may_not(evidence: FakeEvidence) -> None:
    evidence.zeroed = (4, 4)
    ordinary = evidence.scene.ordinary
    evidence.put(replace(ordinary, distribution="subnormal"), answer(0.0, 0.0), WRONG)
    finding = flushes_subnormal.decide(evidence)
    assert finding.outcome is Outcome.PASS
    assert "4 of 4 subnormal results are flushed to zero" in finding.notes
    half = replace(ordinary, distribution="subnormal-16", dtype="float16")
    evidence.put(half, answer(0.0, 0.0), WRONG)
    assert flushes_subnormal.decide(evidence).outcome is Outcome.VIOLATION


def test_an_error_that_grows_by_rounding_is_the_orders(evidence: FakeEvidence) -> None:
    longer = replace(evidence.scene.ordinary, sizes=(("N", 256),), distribution="positive")
    plain = longer.without(["distribution"])
    for probe in (longer, plain):
        evidence.put(probe, answer(1.0, 3.0), WRONG)
    assert order_bound.decide(evidence).outcome is not Outcome.VIOLATION
    assert shape_dependent.decide(evidence).outcome is Outcome.VIOLATION
    evidence.rounding = True
    assert order_bound.decide(evidence).outcome is Outcome.VIOLATION
    assert shape_dependent.decide(evidence).outcome is not Outcome.VIOLATION


@pytest.mark.parametrize(
    ("alive", "outcome"),
    [
        ((8,) * 13, Outcome.PASS),
        ((8, 16, 24, 32, *(40,) * 8, 48), Outcome.PASS),
        (tuple(range(8, 112, 8)), Outcome.VIOLATION),
    ],
)
def test_memory_that_grows_at_every_call_is_lost(
    evidence: FakeEvidence, alive: tuple[int, ...], outcome: Outcome
) -> None:
    calls = replace(evidence.scene.ordinary, history=("same",) * 12)
    evidence.put(calls, answer(1.0, 2.0, live_bytes=alive))
    assert resource_excess.decide(evidence).outcome is outcome


FITS = Demand(words="fits", kernel="k", chip="sm_90", spills=2)
TOO_LARGE = replace(FITS, excesses=("asks for 300,000 bytes of shared memory",))


@pytest.mark.parametrize(
    ("resources", "asked", "peak", "signature"),
    [
        (Resources(chips=("sm_90",), spills=2), FITS, 0, ""),
        (Resources(chips=("sm_90",)), FITS, 0, "spills"),
        (Resources(chips=("sm_90",), spills=2), TOO_LARGE, 0, "excess"),
        (Resources(memory=1.5), None, 150, ""),
        (Resources(memory=1.5), None, 151, "memory"),
    ],
)
def test_declared_resources_are_held_to(
    evidence: FakeEvidence, resources: Resources, asked: Demand | None, peak: int, signature: str
) -> None:
    declared = Declared(resources=resources)
    evidence.scene = replace(evidence.scene, task=replace(evidence.scene.task, declared=declared))
    evidence.asked = (asked,) if asked else ()
    evidence.reference_peak = 100
    evidence.put(evidence.scene.ordinary, answer(1.0, 2.0, peak_bytes=peak, launches=(LAUNCH,)))
    calls = replace(evidence.scene.ordinary, history=("same",) * 12)
    evidence.put(calls, answer(1.0, 2.0, live_bytes=(8,) * 13))
    finding = resource_excess.decide(evidence)
    assert (finding.violation.signature if finding.violation else "") == signature


@pytest.mark.parametrize(("kernel", "outcome"), [(True, "violation"), (False, "not_applicable")])
def test_an_answer_without_a_launch_counts_where_a_kernel_is_demanded(
    evidence: FakeEvidence, kernel: bool, outcome: str
) -> None:
    evidence.scene = replace(
        evidence.scene, task=replace(evidence.scene.task, declared=Declared(kernel=kernel))
    )
    evidence.put(replace(evidence.scene.ordinary, seed=1), answer(1.0, 2.0, library=("relu",)))
    finding = bypasses_kernel.decide(evidence)
    assert finding.outcome == outcome
    assert "relu" in finding.reason


@pytest.mark.parametrize(
    ("policy", "value", "signature"),
    [
        ("keep", 0.0, "flushed"),
        ("keep", 2.0**-127, ""),
        ("flush", 2.0**-127, "kept"),
        ("flush", 0.0, ""),
        ("either", 0.0, ""),
        ("either", 2.0**-127, ""),
    ],
)
def test_a_declared_policy_of_subnormals_is_held_to(
    policy: str, value: float, signature: str
) -> None:
    found = FakeEvidence(scene(task={"declared": Declared(subnormals=policy)}))
    found.put(found.scene.ordinary, answer(1.0))
    found.zeroed = (int(value == 0), 1)
    found.put(replace(found.scene.ordinary, distribution="subnormal"), answer(value))
    finding = flushes_subnormal.decide(found)
    assert (finding.violation.signature if finding.violation else "") == signature


@pytest.mark.parametrize(
    ("declared", "alone", "convicts"),
    [(True, 1.5, True), (True, 1.0, False), (False, 1.5, False)],
)
def test_rows_owe_their_bits_where_it_is_declared(
    declared: bool, alone: float, convicts: bool
) -> None:
    found = FakeEvidence(scene(task={"declared": Declared(batch_invariant=declared)}))
    ordinary = found.scene.ordinary
    assert replace(ordinary, batch="first") in schedule_dependent.plan(found.scene)
    found.put(ordinary, answer(*[1.0] * 64))
    found.put(replace(ordinary, batch="first"), answer(alone))
    finding = schedule_dependent.decide(found)
    assert (finding.outcome is Outcome.VIOLATION) == convicts
    if convicts:
        assert finding.violation is not None
        assert (finding.violation.signature, finding.violation.got) == ("batch", "1.5")
    else:
        assert any("batch" in note for note in finding.notes)


def test_rows_that_are_wrong_alone_are_a_matter_of_shape() -> None:
    found = FakeEvidence(scene(task={"declared": Declared(batch_invariant=True)}))
    found.put(found.scene.ordinary, answer(*[1.0] * 64))
    found.put(replace(found.scene.ordinary, batch="first"), answer(9.0), WRONG)
    assert schedule_dependent.decide(found).outcome is not Outcome.VIOLATION
    assert shape_dependent.decide(found).outcome is Outcome.VIOLATION
