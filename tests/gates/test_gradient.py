"""The decision on gradients, on observations made by hand."""

from __future__ import annotations

from dataclasses import replace

from fakes import WRONG, FakeEvidence, answer, scene

from adjudge.contract import Outcome, Scope
from adjudge.gates import stale_output, wrong_gradient, wrong_value
from adjudge.observation import Observation, Status
from adjudge.task import Declared

TRAINING = {"declared": Declared(training=True)}


def evidence(*, training: bool = False, gradients: bool = True) -> FakeEvidence:
    found = FakeEvidence(
        scene(task=TRAINING if training else {}, discovery={"gradients": gradients})
    )
    found.put(found.scene.ordinary, answer(1.0, 2.0))
    return found


def nothing(found: FakeEvidence) -> None:
    """A backward pass that gives no gradient at all."""
    probe = replace(found.scene.ordinary, cotangent="random")
    given = Observation(
        status=Status.ANSWERED, structure="(none)", missing=("args[0]",), disconnected=("",)
    )
    found.put(probe, given)


def test_no_gradient_is_a_violation_only_where_training_is_declared() -> None:
    silent = evidence(gradients=False)
    nothing(silent)
    finding = wrong_gradient.decide(silent)
    assert finding.outcome is Outcome.NOT_APPLICABLE
    assert finding.reason == "the candidate has no gradient, and the task declares no training"
    asked = evidence(training=True, gradients=False)
    nothing(asked)
    finding = wrong_gradient.decide(asked)
    assert finding.violation is not None
    assert (finding.violation.signature, finding.exact) == ("missing", True)


def test_one_probe_decides_whether_there_is_anything_to_plan() -> None:
    assert len(list(wrong_gradient.plan(evidence(gradients=False).scene))) == 1
    assert len(list(wrong_gradient.plan(evidence().scene))) > 8
    assert not list(wrong_gradient.plan(scene(discovery={"differentiable": ()})))


def test_the_plainest_cotangent_that_fails_is_the_evidence() -> None:
    found = evidence(training=True)
    for kind in ("expanded", "random"):
        found.put(replace(found.scene.ordinary, cotangent=kind), answer(1.0, 3.0), WRONG)
    finding = wrong_gradient.decide(found)
    assert finding.violation is not None
    assert finding.violation.probe.cotangent == "random"
    assert finding.scope is Scope.EXTENDED  # the base point is not the declared one
    native = replace(found.scene.native, cotangent="random")
    assert found.scene.is_declared(native)
    assert not evidence().scene.is_declared(native)


def test_a_wrong_forward_pass_is_not_convicted_twice() -> None:
    found = evidence()
    found.put(found.scene.ordinary, answer(1.0, 3.0), WRONG)
    found.put(replace(found.scene.ordinary, cotangent="random"), answer(1.0, 3.0), WRONG)
    assert wrong_value.decide(found).outcome is Outcome.VIOLATION
    assert wrong_gradient.decide(found).outcome is Outcome.NOT_APPLICABLE


def test_what_fresh_memory_leaves_in_a_gradient_belongs_to_stale_output() -> None:
    found = evidence()
    first = replace(found.scene.ordinary, cotangent="random")
    found.put(first, answer(1.0, 2.0))
    found.put(replace(first, fill="nan"), answer(1.0, 3.0), WRONG)
    assert stale_output.decide(found).outcome is Outcome.VIOLATION
    assert wrong_gradient.decide(found).outcome is not Outcome.VIOLATION
