"""What each declaration of a contract does to a verdict here: nothing is accepted and then ignored."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from adjudge.contract import Promise
from adjudge.contracts import sizes
from adjudge.contracts.terms import Terms, Wider
from adjudge.gates import GATES
from adjudge.inputs.levels import DTYPES

#: Every gate of the design, in its order, whether it is here yet or not.
DESIGNED: tuple[str, ...] = (
    "wrong-value",
    "wrong-gradient",
    "shape-dependent",
    "order-bound",
    "nondeterministic",
    "schedule-dependent",
    "dtype-regime",
    "narrow-accumulator",
    "cancellation",
    "scale-variant",
    "drops-nonfinite",
    "flushes-subnormal",
    "out-of-bounds",
    "stale-output",
    "mutates-input",
    "retains-state",
    "layout-dependent",
    "wrong-metadata",
    "resource-excess",
    "bypasses-kernel",
    "tampers",
)


def present(gates: tuple[str, ...] | list[str]) -> tuple[str, ...]:
    """Those of the named gates that are here, in the order of reports."""
    here = [g.CONTRACT.identifier for g in GATES]
    return tuple(name for name in here if name in gates)


def reads(gate: str, declaration: str) -> bool:
    """Whether that gate is here and says, in a tuple READS beside its CONTRACT, that it judges by that
    field of `task.Declared`."""
    return any(
        g.CONTRACT.identifier == gate and declaration in getattr(g, "READS", ()) for g in GATES
    )


def promises(terms: Terms) -> tuple[Promise, ...]:
    """One for each declaration that the file makes beyond its words."""
    return (
        *_scope(terms),
        *_precondition(terms),
        *_postcondition(terms),
        *_tolerance(terms),
        *_measurement(terms),
    )


def _scope(terms: Terms) -> Iterator[Promise]:
    scope = terms.scope
    for name, words in scope.sizes.items():
        yield Promise(
            name=f"scope.sizes.{name}",
            words=sizes.shown(sizes.ranges(words)),
            judged="a fault or a refusal at these sizes breaks the declared scope; the least and the "
            "greatest are run where this runner can afford them",
        )
    if scope.layouts != ["contiguous"]:
        yield Promise(
            name="scope.layouts",
            words=", ".join(scope.layouts),
            judged="a fault or a refusal under these layouts breaks the declared scope",
        )
    if scope.ranks:
        yield Promise(
            name="scope.ranks",
            words=", ".join(map(str, scope.ranks)),
            judged="a fault or a refusal at these ranks breaks the declared scope",
        )
    if scope.dtypes:
        yield _dtypes(scope.dtypes)
    for tensor in scope.quantised:
        scale = (
            f"scales in {tensor.scale}" if tensor.scale else "no input named that holds its scales"
        )
        words = f"{tensor.stored}, {scale}"
        either = tensor.rounding == "either"
        yield Promise(
            name=f"scope.quantised.{tensor.tensor}",
            words=f"{words}, rounded either way" if either else words,
            judged="one representable value to either side of the reference's is accepted"
            if either
            else "held to the values that the reference stores, or takes, there",
        )
    for refusal in scope.refusals:
        yield Promise(
            name="scope.refusals",
            words=f"{refusal.exception}: {refusal.message}"
            if refusal.message
            else refusal.exception,
            judged="a run that raises it counts neither for nor against the candidate",
        )


def _dtypes(named: list[str]) -> Promise:
    """A dtype that no gate tries is judged only where it is the reference's own."""
    own = "the reference's own dtype must be one of them"
    others = [name for name in named if name in DTYPES]
    untried = ", ".join(name for name in named if name not in DTYPES)
    promise = Promise(
        name="scope.dtypes",
        words=", ".join(named),
        judged=own,
        waits=", ".join(others) if len(named) > 1 else "",
    )
    promise = _left_to("dtype-regime", "dtypes", promise)
    if len(named) > 1 and untried:
        waits = f"{untried}, where the reference takes another"
        promise = replace(promise, waits="; ".join(filter(None, (promise.waits, waits))))
    return promise


def _precondition(terms: Terms) -> Iterator[Promise]:
    before = terms.precondition
    if before.values != "as-drawn":
        yield Promise(
            name="precondition.values",
            words=before.values,
            judged="a fault on such values breaks the declared scope",
        )
    for name, (low, high) in before.ranges.items():
        yield Promise(
            name=f"precondition.ranges.{name}",
            words=f"{low:g} to {high:g}",
            judged="a fault that needs a value beyond them is outside the declared scope",
        )


def _postcondition(terms: Terms) -> Iterator[Promise]:
    after = terms.postcondition
    if after.in_place:
        yield Promise(
            name="postcondition.in_place",
            words=", ".join(after.in_place),
            judged="may be written, and returned; what they then hold is compared where the "
            "reference writes it",
        )
    if after.destinations:
        yield Promise(
            name="postcondition.destinations",
            words=", ".join(after.destinations),
            judged="the outputs are read from the memory given by these arguments",
        )
    if after.batch_invariant:
        yield _left_to(
            "schedule-dependent",
            "batch_invariant",
            Promise(
                name="postcondition.batch_invariant",
                words="true",
                waits="a row alone has the bits that it has in the batch",
            ),
        )
    if after.determinism:
        yield Promise(
            name="postcondition.determinism",
            words=after.determinism,
            judged="runs owe each other the same bits, whatever the reference does"
            if after.determinism == "bitwise"
            else "runs may differ within the derived error",
        )
    if after.subnormals:
        yield _left_to(
            "flushes-subnormal",
            "subnormals",
            Promise(
                name="postcondition.subnormals",
                words=after.subnormals,
                waits="subnormal results are held to it",
            ),
        )
    if after.nonfinite != "propagate":
        yield Promise(
            name="postcondition.nonfinite",
            words=after.nonfinite,
            judged="values are not compared where an input holds NaN or an infinity",
        )
    if after.training:
        yield _left_to(
            "wrong-gradient",
            "training",
            Promise(
                name="postcondition.training",
                words="true",
                judged="faults with redrawn or changed parameters break the declared scope",
                waits="gradients",
            ),
        )
    yield from _resources(terms)
    if after.random:
        yield _left_to(
            "nondeterministic",
            "random",
            Promise(
                name="postcondition.random",
                words="true",
                judged="values that differ convict nobody",
                waits="the same seed gives the same draw, and the next call another",
            ),
        )


def _resources(terms: Terms) -> Iterator[Promise]:
    asked = terms.postcondition.resources
    if asked.chips:
        spills = f"at most {asked.spills} spill accesses a kernel"
        yield Promise(
            name="postcondition.resources.chips",
            words=f"{', '.join(asked.chips)}; {spills if asked.spills else 'no spills'}",
            judged="kernels are compiled for these chips and held to what they have: resource-excess",
        )
    if asked.memory is not None:
        yield Promise(
            name="postcondition.resources.memory",
            words=f"{asked.memory:g} times the reference's",
            judged="the peak of a call is held to it: resource-excess",
        )


def _tolerance(terms: Terms) -> Iterator[Promise]:
    tolerance = terms.tolerance
    if tolerance.regime:
        yield Promise(
            name="tolerance.regime",
            words=tolerance.regime,
            judged="the precision that the candidate must meet",
            reason=tolerance.reason,
        )
    for looser in tolerance.looser:
        yield _wider(looser, f"tolerance.{looser.output}")
    for gradient in tolerance.gradients:
        yield _wider(gradient, "tolerance.gradients", f"{gradient.of}: ")


def _wider(wider: Wider, name: str, whose: str = "") -> Promise:
    return Promise(
        name=name,
        words=f"{whose}atol {wider.atol:g}, rtol {wider.rtol:g}",
        judged="an error within it is accepted, even beyond the derived bound",
        reason=wider.reason,
    )


def _measurement(terms: Terms) -> Iterator[Promise]:
    named = terms.measurement.gates
    if named:
        here = present(named)
        yield Promise(
            name="measurement.gates",
            words=", ".join(named),
            judged=f"run: {', '.join(here)}" if here else "",
            waits=", ".join(name for name in named if name not in here),
        )


def _left_to(gate: str, declaration: str, promise: Promise) -> Promise:
    """The promise with what only that gate judges: judged if the gate is here and reads it."""
    if not promise.waits or not reads(gate, declaration):
        return promise
    judged = "; ".join(filter(None, (promise.judged, f"{promise.waits}: {gate}")))
    return Promise(name=promise.name, words=promise.words, judged=judged, reason=promise.reason)
