"""For each gate a conforming and a violating implementation of one small operation.

Both halves are Triton kernels in KernelBench form, and the violating half passes the field's usual
test (`allclose` at 1e-2 on five seeds). Sources are data: nothing here is ever imported.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from importlib import resources


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
    folder = resources.files("adjudge.calibration") / gate.replace("-", "_")
    texts = {
        name: (folder / f"{name}.py").read_text(encoding="utf-8")
        for name in ("reference", "conforming", "violating")
    }
    return Pair(gate=gate, **texts)


def pairs() -> tuple[Pair, ...]:
    """The pairs of all gates, in the order of `gates.GATES`."""
    from adjudge.gates import GATES

    return tuple(pair(g.CONTRACT.identifier) for g in GATES)
