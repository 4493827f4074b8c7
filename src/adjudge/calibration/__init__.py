"""For each gate a conforming and a violating implementation of one small operation.

Both halves are Triton kernels in KernelBench form, and the violating half passes the field's usual
test (`allclose` at 1e-2 on five seeds). Sources are data: nothing here is ever imported.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from importlib import resources
from importlib.resources.abc import Traversable


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """One reference and its two implementations, as source text."""

    gate: str
    reference: str
    conforming: str
    violating: str


@cache
def pair(gate: str) -> Pair:
    """The pair of one gate.

    Raises:
        FileNotFoundError: the gate has none.
    """
    return _read(resources.files("adjudge.calibration") / gate.replace("-", "_"), gate)


@cache
def class_pair(name: str) -> Pair | None:
    """The pair that shows one published class ("C-CMP-01"), where its gate's own shows another
    side of the gate; None where it does not."""
    root = resources.files("adjudge.calibration")
    folder = root / "classes" / name.lower().replace("-", "_")
    return _read(folder, name) if folder.is_dir() else None


def _read(folder: Traversable, name: str) -> Pair:
    texts = {
        half: (folder / f"{half}.py").read_text(encoding="utf-8")
        for half in ("reference", "conforming", "violating")
    }
    return Pair(gate=name, **texts)


def pairs() -> tuple[Pair, ...]:
    """The pairs of all gates, in the order of `gates.GATES`."""
    from adjudge.gates import GATES

    return tuple(pair(g.CONTRACT.identifier) for g in GATES)
