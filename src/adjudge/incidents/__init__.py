"""Three documented incidents as case studies: each a contract, its reference, and a conforming and a
violating implementation, which run on any machine.

Sources of implementations are data: nothing here imports them.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from adjudge.contracts import classes
from adjudge.contracts.file import ContractFile, load

if TYPE_CHECKING:
    from adjudge.worker.client import Zygote

_HERE = Path(__file__).resolve().parent
#: What judging the pairs showed, as `docs/generate.py --incidents` recorded it.
SIGNATURES = _HERE / "signatures.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class Incident:
    #: Identifier of the contract; the folder has its name.
    name: str
    title: str
    story: str
    #: Addresses of what was published about it.
    sources: tuple[str, ...]
    #: The published class that it breaks, if there is one.
    breaks: str = ""

    @property
    def folder(self) -> str:
        return self.name.replace("-", "_")

    @property
    def contract(self) -> ContractFile:
        """The contract that is broken.

        Raises:
            UsageError: the shipped file is damaged.
        """
        return load(_HERE / self.folder / "contract.toml")

    @property
    def gate(self) -> str:
        """The gate that convicts."""
        return self.contract.terms.measurement.gates[0]

    def source(self, half: str) -> str:
        """Text of "reference", "conforming" or "violating"."""
        return (_HERE / self.folder / f"{half}.py").read_text(encoding="utf-8")

    def measure(self, zygote: Zygote) -> classes.Signature:
        """Judges both halves under the contract.

        Raises:
            AssertionError: they do not show what they are there to show.
        """
        halves = (self.source("conforming"), self.source("violating"))
        return classes.judged(self.gate, self.contract, self.source("reference"), *halves, zygote)


INCIDENTS: tuple[Incident, ...] = (
    Incident(
        name="coerced-precision",
        title="A device that coerces precision in silence",
        story="A matrix product takes float32, returns float32, and multiplies bfloat16: by default "
        "the device keeps 8 of 24 significant bits of each factor, and no cast stands in the "
        "caller's source. Users of such a default found models that leave their reference behind "
        "layer by layer; the usual test at 1e-2 does not see it.",
        sources=(
            "https://github.com/google/jax/issues/1856",
            "https://github.com/google/jax/pull/7859",
            "https://docs.jax.dev/en/latest/201/precision.html",
        ),
        breaks="C-PRC-01",
    ),
    Incident(
        name="stale-answer",
        title="A kernel that returns the reference's own stale memory",
        story="A harness runs the reference, frees what it no longer needs, and runs the candidate. "
        "An allocator hands the block freed last to whoever asks for its size next: the candidate's "
        "uninitialised output holds the right answer before its kernel starts. A kernel that skips "
        "half of the work is then both right and fast. In 2025 generated kernels that were announced "
        "as ten to a hundred times faster turned out to exploit the memory of their own evaluation; "
        "autotuners have met the same by accident.",
        sources=(
            "https://airevolution.poltextlab.com/controversies-surrounding-sakana-ais-cuda-engineer-framework",
            "https://github.com/pytorch/helion/issues/1676",
            "https://www.wafer.ai/blog/reward-hacking",
        ),
    ),
    Incident(
        name="reads-as-zero",
        title="A backend that accepts out-of-bounds reads as zeros",
        story="Some backends define a read outside a buffer: it gives zero. A reduction that forgets "
        "its mask is right there, on every input and in every test, and reads its neighbour's memory "
        "on the next backend that it is ported to.",
        sources=(
            "https://docs.vulkan.org/refpages/latest/refpages/source/VK_KHR_robustness2.html",
            "https://docs.vulkan.org/guide/latest/robustness.html",
        ),
        breaks="C-EXC-02",
    ),
)


def measured() -> dict[str, classes.Signature]:
    """The recorded signatures, by incident."""
    return classes.from_json(SIGNATURES.read_text(encoding="utf-8"))
