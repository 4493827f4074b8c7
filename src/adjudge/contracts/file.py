"""A contract's file: read, checked for what contradicts itself, and turned into what judges it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from keyword import iskeyword
from pathlib import Path
from typing import Any

from adjudge.contract import PARTS
from adjudge.contracts import reading, sizes
from adjudge.contracts.promises import DESIGNED
from adjudge.contracts.reading import Text, near
from adjudge.contracts.terms import Refusal, SizeWords, Terms, Wider
from adjudge.errors import UsageError
from adjudge.inputs.levels import LAYOUTS, RANKS
from adjudge.observation import GRADIENT
from adjudge.oracle import REGIMES
from adjudge.oracle.regimes import BF16, FP16, FP32
from adjudge.static.chips import CHIPS
from adjudge.task import AllowedRefusal, Declared, LooserTolerance, Resources, digest_text

#: Float dtypes that a contract may name, and the unit roundoff of a value stored in each.
DTYPES = {
    "float64": 2.0**-53,
    "float32": FP32,
    "float16": FP16,
    "bfloat16": BF16,
    "float8_e4m3fn": 2.0**-4,
    "float8_e5m2": 2.0**-3,
}
#: Dtypes of few bits that tensors are stored in.
STORED = ("int8", "uint8", "float8_e4m3fn", "float8_e5m2")
#: Classes of exception that every other derives from.
_ANY_EXCEPTION = ("Exception", "BaseException")
_IDENTIFIER = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*\Z")

#: The parts of the file that may be a string in place of a table: all but the name.
WORDED = PARTS[1:]


@dataclass(frozen=True, slots=True)
class ContractFile:
    """One file and what it says."""

    file: Text
    terms: Terms

    @property
    def digest(self) -> str:
        return digest_text(self.file.text)

    @property
    def reference(self) -> Path | None:
        """The reference that it names, if any.

        Raises:
            UsageError: there is no such file.
        """
        named = self.terms.oracle.reference
        if not named:
            return None
        path = Path(self.file.path).parent / named
        if not path.is_file():
            raise self.file.mistake(
                ["oracle", "reference"],
                f"the reference {named!r} is no file beside this one",
                todo="Name it relative to the contract's folder.",
            )
        return path

    @property
    def declared(self) -> Declared:
        """What it declares, as the judge reads it."""
        terms = self.terms
        scope, after = terms.scope, terms.postcondition
        return Declared(
            sizes=sizes.scope(scope.sizes) if scope.sizes else (),
            dtypes=tuple(scope.dtypes),
            layouts=tuple(scope.layouts),
            ranks=tuple(scope.ranks),
            values=terms.precondition.values,
            ranges=tuple((n, low, high) for n, (low, high) in terms.precondition.ranges.items()),
            regime=terms.tolerance.regime,
            training=after.training,
            in_place=(*after.in_place, *(f"kwargs[{name!r}]" for name in after.destinations)),
            destinations=tuple(after.destinations),
            random=after.random,
            batch_invariant=after.batch_invariant,
            determinism=after.determinism,
            subnormals=after.subnormals,
            nonfinite=after.nonfinite,
            resources=Resources(
                chips=tuple(after.resources.chips),
                spills=after.resources.spills,
                memory=after.resources.memory or 0.0,
            ),
            refusals=tuple(map(_allowed, scope.refusals)),
            looser=(
                *(_wider(x, output_path(x.output) or "") for x in terms.tolerance.looser),
                *(_wider(x, f"{GRADIENT}{x.of}") for x in terms.tolerance.gradients),
                *_rounded(terms),
            ),
        )


def load(path: Path) -> ContractFile:
    """The contract in a file.

    Raises:
        UsageError: the file's mistake, with its line and what to do.
    """
    file, content = reading.parsed(path)
    terms = reading.validated(Terms, _worded(content), file)
    found = ContractFile(file, terms)
    for mistake in _mistakes(found):
        raise mistake
    return found


def schema() -> dict[str, Any]:
    """JSON Schema of a contract's file."""
    from pydantic import TypeAdapter

    found = TypeAdapter(Terms).json_schema()
    for part in WORDED:
        found["properties"][part] = {
            "anyOf": [{"type": "string"}, {"$ref": found["properties"][part]["$ref"]}],
        }
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        **found,
        "title": "Adjudge contract",
    }


def output_path(words: str) -> str | None:
    """The path in the returned structure of what a file calls "output" or "output[1]"; None if it is
    no output."""
    return words.removeprefix("output") if re.match(r"output(?:\[|\Z)", words) else None


def _worded(content: Mapping[str, Any]) -> dict[str, Any]:
    return {
        key: {"words": value} if key in WORDED and isinstance(value, str) else value
        for key, value in content.items()
    }


def _allowed(refusal: Refusal) -> AllowedRefusal:
    return AllowedRefusal(
        exception=refusal.exception,
        message=refusal.message,
        sizes=sizes.scope(refusal.sizes),
        layouts=tuple(refusal.layouts),
    )


def _wider(wider: Wider, path: str) -> LooserTolerance:
    return LooserTolerance(path=path, reason=wider.reason, atol=wider.atol, rtol=wider.rtol)


def _rounded(terms: Terms) -> Iterator[LooserTolerance]:
    for tensor in terms.scope.quantised:
        path = output_path(tensor.tensor)
        if path is not None and tensor.rounding == "either":
            reason = f"stored as {tensor.stored}, rounded either way"
            yield LooserTolerance(path=path, reason=reason, steps=1)


def _mistakes(contract: ContractFile) -> Iterator[UsageError]:
    """Contradictions, and words that mean nothing, in the order of the parts."""
    terms, wrong = contract.terms, contract.file.mistake
    if not _IDENTIFIER.match(terms.identifier):
        yield wrong(
            ["identifier"],
            f"{terms.identifier!r} is no identifier",
            todo="Use letters, digits, dots and hyphens.",
        )
    for part in WORDED:
        if not getattr(terms, part).words.strip():
            yield wrong([part], f"the part {part} says nothing", todo="Say it in a sentence.")
    yield from _in_scope(contract)
    yield from _in_conditions(contract)
    yield from _in_tolerance(contract)
    for number, name in enumerate(terms.measurement.gates):
        if name not in DESIGNED:
            yield wrong(
                ["measurement", "gates", number],
                f"there is no gate named {name!r}",
                todo=near(name, DESIGNED),
            )


def _in_scope(contract: ContractFile) -> Iterator[UsageError]:
    scope, wrong = contract.terms.scope, contract.file.mistake
    yield from _sizes(contract, scope.sizes, ("scope", "sizes"))
    yield from _unknown(contract, scope.layouts, LAYOUTS, ("scope", "layouts"), "layout")
    yield from _unknown(contract, scope.dtypes, DTYPES, ("scope", "dtypes"), "float dtype")
    if "contiguous" not in scope.layouts:
        yield wrong(
            ["scope", "layouts"],
            "contiguous inputs are not within the scope, though every judgement starts from them",
            todo='Add "contiguous" to scope.layouts.',
        )
    for number, rank in enumerate(scope.ranks):
        if rank not in RANKS:
            yield wrong(
                ["scope", "ranks", number],
                f"inputs of rank {rank} are not tried, so that nothing can be promised of them",
                todo=f"Name ranks among {', '.join(map(str, RANKS))}.",
            )
    for number, refusal in enumerate(scope.refusals):
        here = ("scope", "refusals", number)
        yield from _sizes(contract, refusal.sizes, (*here, "sizes"))
        yield from _unknown(contract, refusal.layouts, LAYOUTS, (*here, "layouts"), "layout")
        yield from _refusal(contract, refusal, here)
    for number, tensor in enumerate(scope.quantised):
        here = ("scope", "quantised", number)
        yield from _unknown(contract, [tensor.stored], STORED, (*here, "stored"), "narrow dtype")
        if tensor.rounding == "either" and output_path(tensor.tensor) is None:
            yield wrong(
                [*here, "rounding"],
                f"{tensor.tensor} is no output: the caller rounds it, not the candidate",
                todo='Remove rounding, or name an output ("output").',
            )


def _refusal(
    contract: ContractFile, refusal: Refusal, here: tuple[str | int, ...]
) -> Iterator[UsageError]:
    try:
        matches_anything = re.search(refusal.message, "") is not None
    except re.error as error:
        yield contract.file.mistake(
            [*here, "message"], f"{refusal.message!r} is no regular expression: {error}"
        )
        return
    if refusal.exception in _ANY_EXCEPTION and matches_anything:
        field = "message" if refusal.message else "exception"
        yield contract.file.mistake(
            [*here, field],
            f"{refusal.exception} with any message allows every error, so that nothing is promised",
            todo="Name the class that is raised, or a pattern of its message.",
        )


def _in_conditions(contract: ContractFile) -> Iterator[UsageError]:
    before, after = contract.terms.precondition, contract.terms.postcondition
    wrong = contract.file.mistake
    post = partial(_contradiction, contract, "postcondition")
    if before.ranges and before.values == "as-drawn":
        yield _contradiction(
            contract,
            "precondition",
            "ranges",
            'ranges are given, though values is "as-drawn", which admits none but the reference\'s own',
            'Set precondition.values to "finite" or "any".',
        )
    for name, limits in before.ranges.items():
        if len(limits) != 2 or not limits[0] <= limits[1]:
            yield wrong(
                ["precondition", "ranges", name],
                f"{limits} is no range",
                todo="Write the least and the greatest value: [-10.0, 10.0].",
            )
    if before.values == "any" and after.nonfinite == "unspecified":
        yield post(
            "nonfinite",
            'nothing is promised for NaN and infinities, though precondition.values is "any"',
            'Set precondition.values to "finite", or nonfinite to "propagate".',
        )
    if after.random and (after.determinism or after.batch_invariant):
        field = "determinism" if after.determinism else "batch_invariant"
        yield post(field, f"{field} is declared, and random too", "Remove one of them.")
    if after.batch_invariant and after.determinism == "envelope":
        yield post(
            "batch_invariant",
            'bits that do not depend on the batch are declared, though determinism is "envelope"',
            "Remove one of them.",
        )
    yield from _in_resources(contract)
    for name in after.destinations:
        if not name.isidentifier() or iskeyword(name) or after.destinations.count(name) > 1:
            yield post(
                "destinations", f"{name!r} names no keyword argument of its own", "Rename it."
            )


def _in_resources(contract: ContractFile) -> Iterator[UsageError]:
    asked, wrong = contract.terms.postcondition.resources, contract.file.mistake
    here = ("postcondition", "resources")
    yield from _unknown(
        contract, asked.chips, tuple(c.name for c in CHIPS), (*here, "chips"), "chip"
    )
    if asked.spills < 0:
        yield wrong([*here, "spills"], f"spills is {asked.spills}")
    if asked.spills and not asked.chips:
        yield wrong(
            [*here, "spills"],
            "spills are limited, and no chip is named on which",
            todo='Name one: chips = ["sm_90"].',
        )
    if asked.memory is not None and not 0 < asked.memory < float("inf"):
        yield wrong([*here, "memory"], f"memory is {asked.memory}", todo="Give a multiple above 0.")


def _in_tolerance(contract: ContractFile) -> Iterator[UsageError]:
    terms, wrong = contract.terms, contract.file.mistake
    tolerance = terms.tolerance
    regime = [tolerance.regime] if tolerance.regime else []
    yield from _unknown(contract, regime, REGIMES, ("tolerance", "regime"), "precision regime")
    seen: set[str] = set()
    for number, looser in enumerate(tolerance.looser):
        here = ("tolerance", "looser", number)
        if output_path(looser.output) is None:
            yield wrong(
                [*here, "output"],
                f"{looser.output!r} is no output",
                todo='Write "output", or "output[1]" where there are several.',
            )
        if looser.output in seen:
            yield wrong([*here, "output"], f"{looser.output} has two tolerances")
        seen.add(looser.output)
        yield from _width(contract, looser, here)
    of: set[str] = set()
    for number, gradient in enumerate(tolerance.gradients):
        here = ("tolerance", "gradients", number)
        if gradient.of in of:
            yield wrong([*here, "of"], f"the gradient of {gradient.of} has two tolerances")
        of.add(gradient.of)
        yield from _width(contract, gradient, here)


def _width(
    contract: ContractFile, looser: Wider, here: tuple[str | int, ...]
) -> Iterator[UsageError]:
    """What is wrong with the numbers of a wider tolerance, or with its reason."""
    wrong = contract.file.mistake
    if not looser.reason.strip():
        yield wrong(
            [*here, "reason"],
            "a tolerance wider than the derived one has no reason",
            todo="Say why it is needed; every verdict keeps it.",
        )
    for name in ("atol", "rtol"):
        if not 0 <= getattr(looser, name) < float("inf"):
            yield wrong([*here, name], f"{name} is {getattr(looser, name)}")
    if 1 <= looser.rtol < float("inf"):
        yield wrong(
            [*here, "rtol"],
            f"rtol {looser.rtol:g} accepts zero in place of every answer",
            todo="Give a share of the answer, below 1.",
        )
    if not (looser.atol or looser.rtol):
        yield wrong([*here], "neither atol nor rtol is given", todo="Give one of them.")
    coarsest = max((DTYPES[name] for name in contract.terms.scope.dtypes), default=0.0)
    if not looser.atol and looser.rtol < coarsest:
        yield wrong(
            [*here, "rtol"],
            f"rtol {looser.rtol:g} is tighter than the oracle supports: storing the answer alone "
            f"rounds it by {coarsest:.3g}",
            todo="Remove it: the derived tolerance is as tight as can be justified.",
        )


def _contradiction(
    contract: ContractFile, part: str, field: str, what: str, todo: str
) -> UsageError:
    return contract.file.mistake([part, field], what, todo=todo)


def _sizes(
    contract: ContractFile, words: Mapping[str, SizeWords], at: tuple[str | int, ...]
) -> Iterator[UsageError]:
    for name, item in words.items():
        try:
            sizes.ranges(item)
        except ValueError as error:
            yield contract.file.mistake([*at, name], f"{name}: {error}")


def _unknown(
    contract: ContractFile,
    words: list[str],
    known: Mapping[str, object] | tuple[str, ...],
    at: tuple[str | int, ...],
    noun: str,
) -> Iterator[UsageError]:
    for word in words:
        if word not in known:
            yield contract.file.mistake(
                at, f"there is no {noun} named {word!r}", todo=near(word, known)
            )
