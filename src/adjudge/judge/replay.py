"""Runs one recipe again, in a fresh process, and says whether it shows the same."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from adjudge.contract import Finding
from adjudge.errors import UsageError
from adjudge.gates import GATES, gate
from adjudge.inputs.codec import decode_recipe
from adjudge.judge import refused, shrink
from adjudge.judge.cases import CaseBuilder
from adjudge.judge.docket import Docket
from adjudge.judge.runner import Runner
from adjudge.judge.scout import scout
from adjudge.judge.verify import Options, governed, running, scene_of
from adjudge.probe import Probe
from adjudge.program import OutsideDomain, Program
from adjudge.task import Candidate, Launch, short_digest


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayResult:
    gate: str
    probe: Probe
    #: The inputs regenerated from the recipe are the bytes of the record; None where the record holds
    #: none.
    same_inputs: bool | None
    #: The outputs are the bytes of the record; None where the record holds none.
    same_outputs: bool | None
    #: The violation, seen again; None if it did not show.
    finding: Finding | None


#: A replay waits this many times as long for a run as a verdict does.
PATIENCE = 6

#: Gates that convict of a grade. Earlier recipes name the first of them.
_BY_GRADE = ("wrong-value", "narrow-accumulator")


def replay(
    code: str, program: Program, candidate: Candidate, options: Options | None = None
) -> ReplayResult:
    """Regenerates the inputs of a recipe and judges the candidate on them again.

    Raises:
        UsageError: the recipe cannot be read, or belongs to another task.
    """
    options = options or Options()
    # What answered just in time where it was found must not be lost on a slower machine.
    options = replace(options, timeout=PATIENCE * options.timeout)
    if options.contract is not None:
        program, _, options = governed(program, GATES, options, options.contract)
    recipe = decode_recipe(code)
    g = gate(str(recipe["gate"]))
    probe = recipe["probe"]
    _check_task(recipe, program)
    with running(candidate, options) as runner:
        if recipe.get("signature") == refused.SIGNATURE:
            return _compiled(recipe, program, candidate, runner, options)
        docket = _docket(recipe, program, candidate, runner, options)
        base = Probe(sizes=recipe["base"])
        by_grade = recipe["gate"] in _BY_GRADE
        if by_grade:
            docket.run([base, replace(base, seed=1)])
            docket.settle_grade()
        finding = shrink.still(docket, g, probe, base)
        if finding is None and by_grade:
            finding = docket.below_required()
        if probe not in docket.observations:
            raise UsageError(
                f"the recipe cannot be run here: {docket.skipped.get(probe, 'no run was made')}",
                todo="Check that --reference is the file the recipe was made with.",
            )
        seen = [digest[:16] for digest in docket.observations[probe].digests]
        return ReplayResult(
            gate=str(recipe["gate"]),
            probe=probe,
            same_inputs=docket.input_digests.get(probe, "")[:16] == recipe["inputs"],
            # Recipes written before 2026-12-03 name the outputs alone, which come first.
            same_outputs=seen[: len(recipe["outputs"])] == list(recipe["outputs"])
            if recipe["outputs"]
            else None,
            finding=finding,
        )


def _compiled(
    recipe: Mapping[str, Any],
    program: Program,
    candidate: Candidate,
    runner: Runner,
    options: Options,
) -> ReplayResult:
    """Compiles again what no compiler accepted.

    Raises:
        UsageError: no compiler could be asked here.
    """
    launches: tuple[Launch, ...] = ()
    with contextlib.suppress(OutsideDomain):
        builder = scout(program, recipe["base"], runner).builder
        launches = refused.launches_at_native(program, builder, runner)
    return ReplayResult(
        gate=str(recipe["gate"]),
        probe=recipe["probe"],
        same_inputs=None,
        same_outputs=None,
        finding=refused.again(program, candidate, launches, isolation=options.isolation),
    )


def _check_task(recipe: Mapping[str, Any], program: Program) -> None:
    """Raises UsageError: the recipe was made with another reference."""
    task = program.task
    # Recipes written before 2026-12-02 do not name their task; their symbols still tell most apart.
    named = recipe.get("task", short_digest(task.source))
    symbols = {symbol.name for symbol in task.symbols}
    if named != short_digest(task.source) or {n for n, _ in recipe["probe"].sizes} - symbols:
        raise UsageError(
            "the recipe was made with another reference",
            where=task.path or task.name,
            todo="Pass the reference that it was printed with, unchanged, as --reference.",
        )


def _docket(
    recipe: Mapping[str, Any],
    program: Program,
    candidate: Candidate,
    runner: Runner,
    options: Options,
) -> Docket:
    try:
        scouted = scout(program, tuple(map(tuple, recipe["base"])), runner)
    except OutsideDomain as why:
        raise UsageError(f"the reference does not answer this recipe: {why}") from why
    scene = scene_of(program, candidate, scouted, options, base=recipe["base"])
    builder: CaseBuilder = scouted.builder
    asked = {str(recipe["gate"])}
    docket = Docket(scene, builder, runner, required=str(recipe["required"]), asked=asked)
    docket.regime = str(recipe["regime"])
    return docket
