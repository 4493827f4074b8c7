"""The decision on gradients, on observations made by hand."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

import pytest
from fakes import WRONG, FakeEvidence, answer, scene

from adjudge.contract import Outcome, Scope
from adjudge.gates import (
    bypasses_kernel,
    mutates_input,
    out_of_bounds,
    shape_dependent,
    stale_output,
    wrong_gradient,
    wrong_metadata,
    wrong_value,
)
from adjudge.gates.protocol import Comparison, Scene
from adjudge.judge.declared import DeclaredScene
from adjudge.judge.scout import _offered
from adjudge.observation import AccessFault, Observation, Raised, Status
from adjudge.probe import Probe
from adjudge.task import Declared, SizeScope

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


def vars_of(found: Scene) -> dict[str, Any]:
    return {field.name: getattr(found, field.name) for field in fields(found)}


def at_ranks(found: FakeEvidence) -> list[Probe]:
    """The probes of gradients at other ranks, each answered rightly."""
    planned = [p for p in wrong_gradient.plan(found.scene) if p.rank]
    return [found.put(probe, answer(1.0, 2.0)) for probe in planned]


def test_one_gradient_is_asked_at_each_other_rank_and_the_answer_under_it() -> None:
    asked = evidence()
    assert [(p.rank, p.cotangent) for p in at_ranks(asked)] == [(n, "random") for n in (2, 3, 4)]
    forward = [p for p in shape_dependent.plan(asked.scene) if p.rank]
    assert forward == [p.without(["cotangent"]) for p in at_ranks(asked)]
    # What has no gradient may be a kernel for one rank.
    silent = evidence(gradients=False)
    assert not [
        p for g in (wrong_gradient, shape_dependent) for p in g.plan(silent.scene) if p.rank
    ]


def test_a_gradient_that_is_wrong_at_another_rank_alone_is_extended() -> None:
    found = evidence(training=True)
    probe = next(p for p in at_ranks(found) if p.rank == 3)
    found.put(probe, answer(1.0, 3.0), WRONG)
    finding = wrong_gradient.decide(found)
    assert finding.violation is not None
    assert (finding.violation.probe, finding.scope) == (probe, Scope.EXTENDED)
    assert shape_dependent.decide(found).outcome is not Outcome.VIOLATION


def test_a_wrong_answer_at_another_rank_belongs_to_shape_dependent() -> None:
    found = evidence()
    probe = next(p for p in at_ranks(found) if p.rank == 3)
    found.put(probe, answer(1.0, 3.0), WRONG)
    found.put(probe.without(["cotangent"]), answer(1.0, 3.0), WRONG)
    finding = shape_dependent.decide(found)
    assert finding.violation is not None
    assert finding.violation.probe.rank == 3
    assert wrong_gradient.decide(found).outcome is not Outcome.VIOLATION


@pytest.mark.parametrize("training", [False, True])
def test_a_clear_error_at_another_rank_is_no_violation(training: bool) -> None:
    found = evidence(training=training)
    found.put(replace(found.scene.ordinary, cotangent="random"), answer(1.0, 2.0))
    for probe in at_ranks(found):
        raised = Raised(type="ValueError", message="two dimensions", traceback="", phase="call")
        found.put(probe, Observation(status=Status.RAISED, raised=raised))
    finding = wrong_gradient.decide(found)
    assert finding.outcome is Outcome.PASS
    assert any("refused" in note for note in finding.notes)


def test_a_rank_that_a_contract_declares_is_owed() -> None:
    declared = Declared(training=True, ranks=(3,), sizes=SizeScope())
    found = FakeEvidence(DeclaredScene(**vars_of(scene(task={"declared": declared}))))
    found.put(found.scene.ordinary, answer(1.0, 2.0))
    raised = Raised(type="ValueError", message="two dimensions", traceback="", phase="call")
    for probe in at_ranks(found):
        assert found.scene.is_declared(probe) == (probe.rank == 3)
        found.put(probe, Observation(status=Status.RAISED, raised=raised))
    finding = wrong_gradient.decide(found)
    assert finding.violation is not None
    assert (finding.violation.probe.rank, finding.scope) == (3, Scope.DECLARED)


def raising(found: FakeEvidence) -> None:
    probe = replace(found.scene.ordinary, cotangent="random")
    raised = Raised(type="RuntimeError", message="no backward", traceback="", phase="call")
    found.put(probe, Observation(status=Status.RAISED, raised=raised))


def test_a_backward_pass_that_raises_offers_nothing_and_owes_what_training_asks() -> None:
    silent = evidence(gradients=False)
    raising(silent)
    finding = wrong_gradient.decide(silent)
    assert finding.outcome is Outcome.NOT_APPLICABLE
    assert "RuntimeError: no backward" in finding.reason
    asked = evidence(training=True, gradients=False)
    raising(asked)
    finding = wrong_gradient.decide(asked)
    assert finding.violation is not None
    assert (finding.violation.signature, finding.exact) == ("raised", True)
    # Training asks for all of the plan, whatever the scout found.
    assert len(list(wrong_gradient.plan(asked.scene))) > 8


def test_what_counts_as_an_offer() -> None:
    forward = answer(1.0)
    launched = replace(forward, launches=evidence().scene.discovery.launches)
    by_torch = answer(1.0, backward="autograd")
    assert _offered("torch", forward, by_torch)
    assert not _offered("torch", launched, by_torch)
    # CUDA C++ is launched unseen.
    assert not _offered("cuda", forward, by_torch)
    for own in ("function", "explicit"):
        assert _offered("cuda", launched, answer(1.0, backward=own))
        assert not _offered("cuda", launched, answer(1.0, backward=own, disconnected=("[1]",)))
    assert not _offered("torch", forward, Observation(status=Status.RAISED))


def test_kinks_missing_gradients_and_used_up_cotangents_are_noted() -> None:
    found = evidence()
    first = replace(found.scene.ordinary, cotangent="random")
    seen = answer(1.0, missing=("weight",), mutated_inputs=("cotangents[0]",))
    found.put(first, seen, Comparison(outcome="within", excluded=3))
    finding = wrong_gradient.decide(found)
    assert finding.outcome is Outcome.PASS
    assert [note.split(";")[0] for note in finding.notes] == [
        "no gradient for weight",
        "3 elements hang on a kink or a tie that rounding decides, and were left out",
        "the backward pass writes over the cotangent that it is given",
    ]
    # The pass may use it up; what is an input may not be written.
    assert mutates_input.decide(found).outcome is Outcome.PASS
    found.put(first, replace(seen, mutated_inputs=("args[0]",)))
    assert mutates_input.decide(found).outcome is Outcome.VIOLATION


def test_a_parameter_that_cannot_be_asked_for_is_named() -> None:
    found = FakeEvidence(scene(discovery={"unasked": ("norm.weight",)}))
    found.put(found.scene.ordinary, answer(1.0, 2.0))
    found.put(replace(found.scene.ordinary, cotangent="random"), answer(1.0, 2.0))
    finding = wrong_gradient.decide(found)
    assert finding.outcome is Outcome.PASS
    words = "not asked for norm.weight: the candidate's name of it is not known"
    assert finding.notes == (words,)


def test_other_gates_read_a_backward_pass_for_what_it_is() -> None:
    found = FakeEvidence(
        scene(task={"declared": Declared(kernel=True)}, discovery={"gradients": True})
    )
    launches = found.scene.discovery.launches
    found.put(found.scene.ordinary, answer(1.0, launches=launches))
    first = replace(found.scene.ordinary, cotangent="random")
    elsewhere = answer(1.0)
    elsewhere = replace(elsewhere, outputs=(replace(elsewhere.outputs[0], device="cpu"),))
    found.put(first, elsewhere, Comparison(outcome="metadata", reason="shape"))
    assert wrong_metadata.decide(found).outcome is Outcome.PASS
    assert bypasses_kernel.decide(found).outcome is Outcome.PASS
    fault = AccessFault(kind="load", tensor="g_ptr", offset=4, kernel="k", line=3)
    found.put(first, replace(elsewhere, faults=(fault,)))
    assert out_of_bounds.decide(found).outcome is Outcome.VIOLATION


def test_a_backward_pass_that_one_configuration_breaks_is_convicted() -> None:
    found = FakeEvidence(scene(discovery={"gradients": True, "configs": 12}))
    first = replace(found.scene.ordinary, cotangent="random")
    tuned = [p for p in wrong_gradient.plan(found.scene) if p.config >= 0]
    assert tuned == [replace(first, config=number) for number in (11, 1, 10)]
    found.put(found.scene.ordinary, answer(1.0, 2.0))
    found.put(first, answer(1.0, 2.0))
    found.put(replace(found.scene.ordinary, config=11), answer(1.0, 2.0))
    found.put(tuned[0], answer(1.0, 3.0), WRONG)
    finding = wrong_gradient.decide(found)
    assert finding.violation is not None
    assert finding.violation.probe == tuned[0]
