"""What a chip gives one block of threads. Figures: CUDA C++ Programming Guide 13.0, "Technical
specifications per compute capability"."""

from __future__ import annotations

from dataclasses import dataclass

from adjudge.errors import UsageError


@dataclass(frozen=True, slots=True, kw_only=True)
class Chip:
    name: str
    #: Compute capability times ten.
    capability: int
    #: Products that have it.
    known_as: str
    #: Bytes of shared memory that one block may ask for.
    shared: int
    #: Columns of tensor memory in a multiprocessor (0: there is none).
    tensor_memory: int = 0
    registers: int = 255


CHIPS: tuple[Chip, ...] = (
    Chip(name="sm_80", capability=80, known_as="A100", shared=163 << 10),
    Chip(name="sm_90", capability=90, known_as="H100, H200", shared=227 << 10),
    Chip(
        name="sm_100",
        capability=100,
        known_as="B200",
        shared=227 << 10,
        tensor_memory=512,
    ),
)


def chip(name: str) -> Chip:
    """The chip of that name.

    Raises:
        UsageError: it is none of ours.
    """
    found = next((c for c in CHIPS if c.name == name), None)
    if found is None:
        names = ", ".join(c.name for c in CHIPS)
        raise UsageError(f"there is no chip named {name!r}", todo=f"Choose from {names}.")
    return found
