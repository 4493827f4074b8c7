"""Each gate's decision on observations made by hand."""

from __future__ import annotations

from dataclasses import replace

import pytest
from fakes import LAUNCH, WITHIN, WRONG, FakeEvidence, answer, output, scene

from adjudge.contract import Outcome, Scope
from adjudge.errors import UsageError
from adjudge.gates import (
    GATES,
    drops_nonfinite,
    gate,
    mutates_input,
    nondeterministic,
    out_of_bounds,
    retains_state,
    shape_dependent,
    stale_output,
    tampers,
    wrong_metadata,
    wrong_value,
)
from adjudge.gates.protocol import Comparison
from adjudge.observation import AccessFault, Observation, Raised, Status
from adjudge.task import Declared


@pytest.fixture
def evidence() -> FakeEvidence:
    found = FakeEvidence(scene())
    found.put(found.scene.ordinary, answer(1.0, 2.0))
    return found


def clean_run(evidence: FakeEvidence, module: object) -> None:
    for probe in module.plan(evidence.scene):  # type: ignore[attr-defined]
        evidence.put(probe, answer(1.0, 2.0, launches=(LAUNCH,)))


@pytest.mark.parametrize("module", GATES, ids=lambda g: g.CONTRACT.identifier)
def test_clean_runs_pass_every_gate(module: object, evidence: FakeEvidence) -> None:
    evidence.scene = scene(task={"declared": Declared(kernel=True)})
    clean_run(evidence, module)
    assert module.decide(evidence).outcome is Outcome.PASS  # type: ignore[attr-defined]


@pytest.mark.parametrize("module", GATES, ids=lambda g: g.CONTRACT.identifier)
def test_a_missing_baseline_is_never_a_pass(module: object) -> None:
    finding = module.decide(FakeEvidence(scene()))  # type: ignore[attr-defined]
    assert finding.outcome is Outcome.NOT_APPLICABLE


def test_a_wrong_ordinary_answer_is_one_conviction(evidence: FakeEvidence) -> None:
    for module in (wrong_value, shape_dependent, drops_nonfinite):
        for probe in module.plan(evidence.scene):
            evidence.put(probe, answer(1.0, 3.0), WRONG)
    assert wrong_value.decide(evidence).outcome is Outcome.VIOLATION
    assert shape_dependent.decide(evidence).outcome is Outcome.NOT_APPLICABLE
    assert drops_nonfinite.decide(evidence).outcome is Outcome.NOT_APPLICABLE


def test_two_factors_belong_to_the_one_that_is_needed(evidence: FakeEvidence) -> None:
    ordinary = evidence.scene.ordinary
    odd = (("N", 65),)
    crossed = replace(ordinary, sizes=odd, special="nan@last")
    evidence.put(crossed, answer(1.0), WRONG)
    evidence.put(replace(ordinary, sizes=odd), answer(1.0), WRONG)
    evidence.put(replace(ordinary, special="nan@last"), answer(1.0), WITHIN)
    finding = shape_dependent.decide(evidence)
    assert finding.outcome is Outcome.VIOLATION
    assert finding.violation is not None
    assert finding.violation.probe == replace(ordinary, sizes=odd)
    assert drops_nonfinite.decide(evidence).outcome is not Outcome.VIOLATION


def test_both_factors_needed_belong_to_the_rarer(evidence: FakeEvidence) -> None:
    ordinary = evidence.scene.ordinary
    crossed = replace(ordinary, sizes=(("N", 65),), special="nan@last")
    evidence.put(crossed, answer(1.0), WRONG)
    evidence.put(replace(ordinary, sizes=(("N", 65),)), answer(1.0))
    evidence.put(replace(ordinary, special="nan@last"), answer(1.0))
    assert drops_nonfinite.decide(evidence).outcome is Outcome.VIOLATION
    assert shape_dependent.decide(evidence).outcome is not Outcome.VIOLATION


def test_an_error_away_from_the_native_point_is_a_refusal(evidence: FakeEvidence) -> None:
    raised = Raised(type="ValueError", message="N must be 64", traceback="", phase="call")
    for probe in shape_dependent.plan(evidence.scene):
        evidence.put(probe, Observation(status=Status.RAISED, raised=raised))
    # The native point must answer, so that one probe of the plan is a violation.
    native = replace(evidence.scene.ordinary, sizes=(("N", 1024),))
    finding = shape_dependent.decide(evidence)
    assert finding.outcome is Outcome.VIOLATION
    assert finding.violation is not None
    assert finding.violation.probe == native
    assert finding.scope is Scope.DECLARED
    evidence.put(native, answer(1.0))
    assert shape_dependent.decide(evidence).outcome is Outcome.PASS
    del evidence.observations[native]
    assert shape_dependent.decide(evidence).outcome is Outcome.REFUSAL


def test_a_complaint_of_a_kernel_is_told_whole(evidence: FakeEvidence) -> None:
    said = "long words " * 40 + "(kernel k, line 7: `x = y`)"
    raised = Raised(type="E", message="at 5:4:", traceback="", phase="call", complaint=said)
    native = replace(evidence.scene.ordinary, sizes=(("N", 1024),))
    evidence.put(native, Observation(status=Status.RAISED, raised=raised))
    assert shape_dependent.decide(evidence).reason == f"raised E instead of answering: {said}"


def test_a_time_out_is_inconclusive_not_a_violation(evidence: FakeEvidence) -> None:
    hung = Observation(status=Status.HUNG, ending="no answer within 10 s")
    for probe in wrong_value.plan(evidence.scene):
        evidence.put(probe, hung)
    finding = wrong_value.decide(evidence)
    assert finding.outcome is Outcome.INCONCLUSIVE
    assert "10 s" in finding.reason


def test_varying_bits_convict_unless_the_reference_varies_too(evidence: FakeEvidence) -> None:
    clean_run(evidence, nondeterministic)
    again = replace(evidence.scene.ordinary, repeat=1)
    evidence.put(again, answer(1.0, 2.0000002))
    finding = nondeterministic.decide(evidence)
    assert finding.outcome is Outcome.VIOLATION
    assert finding.exact
    assert finding.violation is not None
    assert finding.violation.index == (1,)
    evidence.moves = True
    assert nondeterministic.decide(evidence).outcome is Outcome.PASS


def test_gradients_that_vary_convict(evidence: FakeEvidence) -> None:
    clean_run(evidence, nondeterministic)
    again = replace(evidence.scene.ordinary, cotangent="random", schedule="reversed")
    assert again in evidence.observations
    evidence.put(again, answer(1.0, 2.0000002))
    finding = nondeterministic.decide(evidence)
    assert finding.outcome is Outcome.VIOLATION
    assert finding.violation is not None
    assert finding.violation.probe == again


def test_declared_randomness_is_not_held_to_equality(evidence: FakeEvidence) -> None:
    evidence.scene = replace(
        evidence.scene,
        task=replace(
            evidence.scene.task, declared=replace(evidence.scene.task.declared, random=True)
        ),
    )
    assert nondeterministic.decide(evidence).outcome is Outcome.NOT_APPLICABLE


def test_poison_that_shows_is_stale(evidence: FakeEvidence) -> None:
    clean_run(evidence, stale_output)
    evidence.put(replace(evidence.scene.ordinary, fill="nan"), answer(1.0, float("nan")))
    finding = stale_output.decide(evidence)
    assert finding.outcome is Outcome.VIOLATION
    assert finding.violation is not None
    assert finding.violation.got == "nan"


def test_an_address_outside_is_an_access(evidence: FakeEvidence) -> None:
    clean_run(evidence, out_of_bounds)
    fault = AccessFault(kind="load", tensor="args[0]", offset=4, kernel="k", line=7)
    odd = replace(evidence.scene.ordinary, sizes=(("N", 65),))
    evidence.put(odd, answer(1.0, faults=(fault,)))
    finding = out_of_bounds.decide(evidence)
    assert finding.outcome is Outcome.VIOLATION
    assert finding.scope is Scope.EXTENDED
    assert finding.violation is not None
    assert "line 7" in finding.violation.where


def test_mutation_is_allowed_where_the_reference_mutates(evidence: FakeEvidence) -> None:
    evidence.put(evidence.scene.ordinary, answer(1.0, mutated_inputs=("args[0]",)))
    assert mutates_input.decide(evidence).outcome is Outcome.VIOLATION
    discovery = replace(evidence.scene.discovery, reference_writes=("args[0]",))
    evidence.scene = replace(evidence.scene, discovery=discovery)
    assert mutates_input.decide(evidence).outcome is Outcome.PASS


def test_state_that_the_reference_moves_may_be_nested_otherwise(evidence: FakeEvidence) -> None:
    changed = answer(1.0, mutated_parameters=("norm.running_mean",))
    evidence.put(evidence.scene.ordinary, changed)
    discovery = evidence.scene.discovery
    moved = replace(discovery, reference_writes=("layers.0.running_mean",), weights="by seed")
    evidence.scene = replace(evidence.scene, discovery=moved)
    assert mutates_input.decide(evidence).outcome is Outcome.PASS
    other = replace(discovery, reference_writes=("layers.0.running_var",), weights="by seed")
    evidence.scene = replace(evidence.scene, discovery=other)
    assert mutates_input.decide(evidence).outcome is Outcome.VIOLATION


def test_history_and_aliasing_are_state(evidence: FakeEvidence) -> None:
    clean_run(evidence, retains_state)
    shared = output(1.0, 2.0, aliases=("args[0]",))
    evidence.put(evidence.scene.ordinary, answer(outputs=(shared,)))
    finding = retains_state.decide(evidence)
    assert finding.outcome is Outcome.VIOLATION
    assert finding.violation is not None
    assert finding.violation.signature == "alias"
    evidence.put(evidence.scene.ordinary, answer(1.0, 2.0))
    evidence.put(replace(evidence.scene.ordinary, history=("in-place",)), answer(5.0, 2.0))
    finding = retains_state.decide(evidence)
    assert finding.violation is not None
    assert finding.violation.signature == "history"


def test_aliasing_is_allowed_where_the_reference_aliases(evidence: FakeEvidence) -> None:
    clean_run(evidence, retains_state)
    shared = answer(outputs=(output(1.0, 2.0, aliases=("args[0]",)),))
    odd = evidence.put(replace(evidence.scene.ordinary, sizes=(("N", 1),)), shared)
    evidence.aliasing = {odd}
    assert retains_state.decide(evidence).outcome is Outcome.PASS
    other = evidence.put(replace(odd, sizes=(("N", 3),)), shared)
    finding = retains_state.decide(evidence)
    assert finding.violation is not None
    assert finding.violation.probe == other


def test_metadata_has_one_owner(evidence: FakeEvidence) -> None:
    wrong = Comparison(outcome="metadata", reason="dtype float16", expected="float32")
    for probe in wrong_value.plan(evidence.scene):
        evidence.put(probe, answer(1.0, 2.0), wrong)
    assert wrong_metadata.decide(evidence).outcome is Outcome.VIOLATION
    assert wrong_value.decide(evidence).outcome is Outcome.NOT_APPLICABLE


def test_an_output_on_another_device(evidence: FakeEvidence) -> None:
    evidence.put(evidence.scene.ordinary, answer(outputs=(output(1.0, device="cpu"),)))
    finding = wrong_metadata.decide(evidence)
    assert finding.violation is not None
    assert finding.violation.signature == "device"


def test_leaving_without_an_answer_is_tampering(evidence: FakeEvidence) -> None:
    evidence.put(evidence.scene.ordinary, Observation(status=Status.EXITED, ending="exit code 0"))
    finding = tampers.decide(evidence)
    assert finding.outcome is Outcome.VIOLATION
    assert finding.violation is not None
    assert finding.violation.signature == "exited"


def test_gates_are_found_by_name_with_near_matches() -> None:
    assert gate("stale-output") is stale_output
    with pytest.raises(UsageError, match="stale-output"):
        gate("stale-outputs")


def test_every_contract_states_its_eight_parts() -> None:
    from adjudge.contract import PARTS

    for module in GATES:
        for part in PARTS:
            assert getattr(module.CONTRACT, part).strip(), (module, part)
