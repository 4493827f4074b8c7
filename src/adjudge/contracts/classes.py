"""The twelve published classes of kernel contracts, each as a contract's file that is shipped."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cache
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING

from adjudge.contract import Finding, Outcome
from adjudge.contracts.file import ContractFile, load
from adjudge.contracts.promises import present

if TYPE_CHECKING:
    from adjudge.calibration import Pair
    from adjudge.worker.client import Zygote

#: Precision, order, composition, exceptions.
CLASSES: tuple[str, ...] = (
    "C-PRC-01",
    "C-PRC-02",
    "C-PRC-03",
    "C-PRC-04",
    "C-ORD-01",
    "C-ORD-02",
    "C-ORD-03",
    "C-CMP-01",
    "C-CMP-02",
    "C-CMP-03",
    "C-EXC-01",
    "C-EXC-02",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Signature:
    """What judging a class's pair under its contract showed."""

    gate: str
    #: Reason of the gate's finding on the conforming half.
    conforming: str
    #: (name, value) of the violation of the violating half: what, probe, where, expected, got, bound.
    violating: tuple[tuple[str, str], ...]


@cache
def published(name: str) -> ContractFile:
    """The contract of one class.

    Raises:
        UsageError: the shipped file is damaged.
    """
    with resources.as_file(resources.files("adjudge.contracts") / "published") as folder:
        return load(folder / f"{name}.toml")


def carrier(name: str) -> str:
    """The gate that judges a class."""
    return published(name).terms.measurement.gates[0]


def sources(name: str) -> Pair | None:
    """The conforming and the violating implementation that show a class: its own, or those of its
    gate; None if the gate is not here."""
    from adjudge.calibration import class_pair, pair

    gate = carrier(name)
    return class_pair(name) or (pair(gate) if present([gate]) else None)


def measured() -> dict[str, Signature]:
    """The recorded signatures, of the classes whose gate was here when they were recorded."""
    text = (resources.files("adjudge.contracts") / "published" / "signatures.json").read_text(
        encoding="utf-8"
    )
    return from_json(text)


def from_json(text: str) -> dict[str, Signature]:
    """The signatures in a file that `to_json` wrote."""
    return {
        name: Signature(
            gate=row["gate"],
            conforming=row["conforming"],
            violating=tuple((key, value) for key, value in row["violating"].items()),
        )
        for name, row in json.loads(text).items()
    }


def measure(name: str, zygote: Zygote) -> Signature | None:
    """Judges the pair of the class under its contract; None if the gate is not here.

    Raises:
        AssertionError: the pair does not show what it is there to show.
    """

    gate, pair = carrier(name), sources(name)
    if pair is None or not present([gate]):
        return None
    return judged(gate, published(name), pair.reference, pair.conforming, pair.violating, zygote)


def judged(
    gate: str,
    contract: ContractFile,
    reference: str,
    conforming: str,
    violating: str,
    zygote: Zygote,
) -> Signature:
    """Judges two implementations of a reference under a contract; the sources are texts.

    Raises:
        AssertionError: the pair does not show what it is there to show.
    """
    from adjudge.frontends import kernelbench
    from adjudge.judge.verify import Options, verify

    options = Options(zygote=zygote, examine=False, contract=contract)
    found: dict[str, Finding] = {}
    for half, source in (("conforming", conforming), ("violating", violating)):
        program, candidate = kernelbench.from_source(reference, source, f"{gate}-{half}")
        verdict = verify(program, candidate, options)
        found[half] = next(f for f in verdict.findings if f.gate == gate)
    assert found["conforming"].outcome is Outcome.PASS, f"{gate}: {found['conforming'].reason}"
    assert found["violating"].violation is not None, f"{gate}: {found['violating'].reason}"
    return Signature(
        gate=gate,
        conforming=found["conforming"].reason,
        violating=tuple(_evidence(found["violating"])),
    )


def to_json(signatures: dict[str, Signature]) -> str:
    """The signatures as the shipped file holds them."""
    rows = {
        name: {"gate": s.gate, "conforming": s.conforming, "violating": dict(s.violating)}
        for name, s in signatures.items()
    }
    return json.dumps(rows, indent=1, ensure_ascii=False) + "\n"


def folder() -> Path:
    """Where the published files lie in a checkout."""
    return Path(__file__).resolve().parent / "published"


def _evidence(finding: Finding) -> list[tuple[str, str]]:
    from adjudge.inputs.codec import describe

    violation = finding.violation
    assert violation is not None, finding.reason
    where = violation.where + (str(list(violation.index)) if violation.index is not None else "")
    rows = [
        ("signature", violation.signature),
        ("what", violation.message),
        ("probe", describe(violation.probe)),
        ("where", where),
        ("expected", violation.expected),
        ("got", violation.got),
        ("bound", violation.bound),
        ("excess", f"{violation.excess:.3g}" if violation.excess else ""),
        ("scope", finding.scope.value),
        ("exact", "yes" if finding.exact else "no"),
    ]
    return [(key, value) for key, value in rows if value]
