"""A contract against the reference that it is declared for."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from adjudge import arrays
from adjudge.contracts import sizes
from adjudge.contracts.file import DTYPES, ContractFile, output_path
from adjudge.contracts.reading import near
from adjudge.contracts.terms import Wider
from adjudge.errors import UsageError
from adjudge.inputs import batches
from adjudge.inputs.ranks import at_other_ranks
from adjudge.inputs.sampler import Sampler
from adjudge.judge.cases import WEIGHT_SEED, CaseBuilder
from adjudge.judge.declared import beyond
from adjudge.observation import GRADIENT
from adjudge.oracle import REGIMES, Oracle
from adjudge.oracle.regimes import regime
from adjudge.oracle.statistics import element_multiple
from adjudge.probe import Probe, sizes_of
from adjudge.program import Arguments, OutsideDomain, Program
from adjudge.symbols import shrunken
from adjudge.task import SizeScope

#: Envelopes drawn to see how tight the derived tolerance is: as many as decide a verdict.
_SAMPLES = 32


def check(contract: ContractFile, program: Program) -> None:
    """Holds what the contract names against what the reference has.

    Raises:
        UsageError: they do not fit; the message points at the line.
    """
    for mistake in _names(contract, program):
        raise mistake
    try:
        arguments = program.arguments(shrunken(program), Sampler(0))
        oracle = Oracle(
            lambda: program.construct(arguments, seed=WEIGHT_SEED, redrawn=False),
            arguments,
            generic=True,
        )
        _ = oracle.native
    except OutsideDomain:
        # The verdict says so of the reference; the contract is not at fault.
        return
    for mistake in (
        *_answers(contract, oracle, arguments),
        *_batches(contract, program),
        *_ranks(contract, program),
        *_gradients(contract, program),
    ):
        raise mistake


def _names(contract: ContractFile, program: Program) -> Iterator[UsageError]:
    terms, wrong, task = contract.terms, contract.file.mistake, program.task
    symbols = [symbol.name for symbol in task.symbols]
    inputs = [spec.name for spec in task.inputs]
    state = [spec.name for spec in task.parameters]
    named = [(("scope", "sizes", name), name) for name in terms.scope.sizes]
    for number, refusal in enumerate(terms.scope.refusals):
        named += [(("scope", "refusals", number, "sizes", n), n) for n in refusal.sizes]  # type: ignore[misc]
    for at, name in named:
        if name not in symbols:
            yield wrong(
                at, f"the reference has no dimension symbol {name!r}", todo=near(name, symbols)
            )
    native = tuple(sorted(task.native.items()))
    for name, words in terms.scope.sizes.items():
        if native not in SizeScope(((name, sizes.ranges(words)),)):
            yield wrong(
                ["scope", "sizes", name],
                f"{name} is {task.native[name]} in the reference, which is outside of {words!r}",
                todo="Widen the scope, or give the reference a size within it.",
            )
    floats = {s.dtype for s in task.inputs if s.dtype.startswith(("float", "bfloat"))}
    narrow = {tensor.stored for tensor in terms.scope.quantised}
    for dtype in sorted(floats - set(terms.scope.dtypes) - narrow) if terms.scope.dtypes else ():
        yield wrong(
            ["scope", "dtypes"],
            f"the reference takes {dtype}, which is not within the scope",
            todo=f"Add {dtype!r}, or change the reference's inputs.",
        )
    for name in terms.precondition.ranges:
        if name not in inputs:
            yield wrong(
                ["precondition", "ranges", name],
                f"the reference has no input {name}",
                todo=near(name, inputs),
            )
    for name in terms.postcondition.in_place:
        if name not in (*inputs, *state):
            yield wrong(
                ["postcondition", "in_place"],
                f"the reference has no input, parameter or buffer {name}",
                todo=near(name, (*inputs, *state)),
            )
    dtypes = {spec.name: spec.dtype for spec in task.inputs}
    for number, tensor in enumerate(terms.scope.quantised):
        here = ("scope", "quantised", number)
        for field, name in (("tensor", tensor.tensor), ("scale", tensor.scale)):
            if name and name not in inputs and output_path(name) is None:
                yield wrong(
                    [*here, field], f"the reference has no input {name}", todo=near(name, inputs)
                )
        held = dtypes.get(tensor.tensor, tensor.stored)
        if held != tensor.stored:
            yield wrong(
                [*here, "stored"],
                f"{tensor.tensor} is {held} in the reference, not {tensor.stored}",
            )


def _answers(contract: ContractFile, oracle: Oracle, arguments: Arguments) -> Iterator[UsageError]:
    terms, wrong = contract.terms, contract.file.mistake
    outside = beyond(contract.declared, arguments)
    if outside:
        yield wrong(
            ["precondition", "ranges", outside],
            f"the reference draws {outside} beyond this range itself",
            todo="Widen the range, or change the reference's inputs.",
        )
    paths = {f"output{leaf.path}": leaf.dtype for leaf in oracle.native}
    declared = terms.tolerance.regime
    weaker = bool(declared) and REGIMES.index(declared) > REGIMES.index(oracle.required)
    if weaker and not terms.tolerance.reason.strip():
        yield wrong(
            ["tolerance", "regime"],
            f"{declared} is weaker than {oracle.required}, which the reference itself gives, and no "
            "reason is stated",
            todo="Add tolerance.reason; every verdict keeps it.",
        )
    names = terms.postcondition.destinations
    if names and len(names) != len(paths):
        yield wrong(
            ["postcondition", "destinations"],
            f"{len(names)} destinations are named, and the reference has {len(paths)} outputs",
            todo="Name one keyword argument for each output, in order.",
        )
    for number, tensor in enumerate(terms.scope.quantised):
        held = paths.get(tensor.tensor, tensor.stored)
        if output_path(tensor.tensor) is not None and tensor.tensor not in paths:
            yield wrong(
                ["scope", "quantised", number, "tensor"],
                f"the reference has no {tensor.tensor}",
                todo=near(tensor.tensor, paths),
            )
        elif held != tensor.stored:
            yield wrong(
                ["scope", "quantised", number, "stored"],
                f"{tensor.tensor} is {held} in the reference, not {tensor.stored}",
            )
    for number, looser in enumerate(terms.tolerance.looser):
        here = ("tolerance", "looser", number)
        if looser.output not in paths:
            yield wrong(
                [*here, "output"],
                f"the reference has no {looser.output}",
                todo=near(looser.output, paths),
            )
        else:
            path = output_path(looser.output) or ""
            yield from _width(contract, looser, here, oracle, path)


def _width(
    contract: ContractFile,
    looser: Wider,
    here: tuple[str | int, ...],
    oracle: Oracle,
    path: str,
) -> Iterator[UsageError]:
    """A tolerance that lies within the derived one, or that zeros would meet."""
    words = f"atol {looser.atol:g}, rtol {looser.rtol:g}"
    if _tighter(looser, oracle, path, contract.terms.tolerance.regime or oracle.required):
        yield contract.file.mistake(
            here,
            f"{words} is tighter than the oracle supports: the derived tolerance is wider for every "
            "element",
            todo="Remove it: the derived tolerance is as tight as can be justified.",
        )
    elif _accepts_zero(looser, oracle, path):
        yield contract.file.mistake(
            [*here, "atol" if looser.atol else "rtol"],
            f"{words} accepts zero in place of every answer that the reference gives to inputs of its "
            "own",
            todo="Make it smaller than the answers.",
        )


def _gradients(contract: ContractFile, program: Program) -> Iterator[UsageError]:
    """Tolerances of gradients that the reference does not have, or that lie within the derived ones."""
    declared = contract.terms.tolerance.gradients
    if not declared:
        return
    probe = Probe(sizes=sizes_of(shrunken(program)), cotangent="random")
    # Every parameter is asked for: which a candidate names otherwise is not the contract's matter.
    builder = CaseBuilder(program, by_name=True)
    names: dict[str, str] = {}
    with contextlib.suppress(OutsideDomain):
        oracle = builder.gradient_oracle(probe, builder.arguments(probe))
        names = {leaf.path.removeprefix(GRADIENT): leaf.path for leaf in oracle.native}
    for number, looser in enumerate(declared):
        here = ("tolerance", "gradients", number)
        if looser.of not in names:
            yield contract.file.mistake(
                [*here, "of"],
                f"the reference has no gradient for {looser.of!r}",
                todo=near(looser.of, names) if names else "Remove it.",
            )
        else:
            yield from _width(contract, looser, here, oracle, names[looser.of])


def _batches(contract: ContractFile, program: Program) -> Iterator[UsageError]:
    """Batch invariance, where the reference has no rows that could be alone, or mixes them."""
    if not contract.terms.postcondition.batch_invariant:
        return
    here = ["postcondition", "batch_invariant"]
    symbol = batches.symbol_of(program.task)
    if symbol is None:
        yield contract.file.mistake(
            here,
            "the reference has no batch: the first axis of its first input has one size only",
            todo="Remove it, or let get_inputs draw that size from a literal of its own.",
        )
        return
    sizes = shrunken(program)
    alone = Probe(sizes=sizes_of({**sizes, symbol.name: max(sizes[symbol.name], 2)}), batch="first")
    try:
        CaseBuilder(program, by_name=False).build(alone)
    except OutsideDomain as why:
        yield contract.file.mistake(
            here,
            f"the reference itself cannot keep it: {why}",
            todo="Remove it: a row of this reference has no answer of its own.",
        )


def _ranks(contract: ContractFile, program: Program) -> Iterator[UsageError]:
    """Ranks at which the reference does not answer, or gives the same rows another meaning."""
    ordinary = Probe(sizes=sizes_of(shrunken(program)))
    declared = contract.terms.scope.ranks
    for probe in at_other_ranks(program.task, ordinary):
        if probe.rank not in declared:
            continue
        try:
            CaseBuilder(program, by_name=False).build(probe)
        except OutsideDomain as why:
            yield contract.file.mistake(
                ["scope", "ranks", declared.index(probe.rank)],
                f"the reference itself does not take inputs of rank {probe.rank}: {why}",
                todo="Remove it, or let the reference take its leading dimensions for a batch.",
            )


def _accepts_zero(looser: Wider, oracle: Oracle, path: str) -> bool:
    """Whether an answer of nothing but zeros passes at a small point, where the truth is another."""
    truth = next(np.abs(x.data.astype(np.float64)) for x in oracle.exact if x.path == path)
    finite = truth[np.isfinite(truth)]
    return bool(finite.any() and (finite <= looser.atol + looser.rtol * finite).all())


def _tighter(looser: Wider, oracle: Oracle, path: str, name: str) -> bool:
    """Whether the declared bound lies within the derived one for every element at a small point."""
    index = next(i for i, leaf in enumerate(oracle.native) if leaf.path == path)
    leaf = oracle.exact[index]
    if not leaf.data.size or not arrays.torch_dtype(oracle.native[index].dtype).is_floating_point:
        return False
    truth = np.abs(leaf.data.astype(np.float64))
    found = regime(name)
    store = max(found.store, DTYPES.get(oracle.native[index].dtype, 0.0))
    envelope = oracle.envelope(replace(found, store=store), _SAMPLES)[index]
    derived = element_multiple(_SAMPLES, truth.size) * envelope
    with np.errstate(invalid="ignore"):
        return not bool((looser.atol + looser.rtol * truth > derived).any())
