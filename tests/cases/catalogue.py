"""All faults of the list of public reports: the cases here, and what they wait for that are none."""

from __future__ import annotations

from dataclasses import dataclass

from device_faults import DEVICE_FAULTS
from faults import FAULTS, Fault
from gradient_faults import GRADIENT_FAULTS

TWO_GPUS, OTHER = "two GPUs", "another architecture"

#: Where a fault of each identifier lies.
CLASSES: dict[str, tuple[str, ...]] = {
    "special values": ("S01", "S02", "S03", "S04"),
    "magnitude": ("S05", "S06", "S07", "S08", "S49"),
    "precision": ("S09", "S10", "S11"),
    "layout": ("S12", "S13", "S14", "S15"),
    "bounds": ("S16", "S17", "S55"),
    "shape": ("S18", "S21", "S22", "S23"),
    "scale": ("S19", "S20"),
    "mutation": ("S24", "S38"),
    "aliasing": ("S56",),
    "stale memory": ("S26", "S27", "S39", "S50"),
    "tuning": ("S28", "S51"),
    "order and races": ("S29", "S30"),
    "batch invariance": ("S31",),
    "gradient": ("S25", "S32", "S33", "S34", "S35"),
    "metadata": ("S36",),
    "randomness": ("S37",),
    "device and stream": ("S40", "S52", "S53"),
    "kept state": ("S41", "S42"),
    "tampering": ("S43", "S44", "S45", "S46"),
    "fallback": ("S47",),
    "the task": ("S48",),
    "architecture": ("S54",),
}
#: How many reports the list has.
REPORTS = 56


@dataclass(frozen=True, kw_only=True)
class Waiting:
    """A fault that no machine here shows."""

    identifier: str
    report: str
    what: str
    waits: str


WAITING: tuple[Waiting, ...] = (
    Waiting(
        identifier="S30",
        report="https://github.com/tile-ai/tilelang/issues/2699",
        what="threads of one block read shared memory before it is written, on sm_120",
        waits=OTHER,
    ),
    Waiting(
        identifier="S52",
        report="https://github.com/linkedin/Liger-Kernel/issues/1303",
        what="a kernel is launched on the current device, whatever device its tensors are on",
        waits=TWO_GPUS,
    ),
    Waiting(
        identifier="S54",
        report="https://github.com/linkedin/Liger-Kernel/pull/1413",
        what="a compiler loses one of two products that share an accumulator, on sm_103",
        waits=OTHER,
    ),
)


@dataclass(frozen=True, kw_only=True)
class OfTheTask:
    """A fault of the task, which is found before any candidate is judged."""

    identifier: str = "S48"
    report: str = "https://github.com/ScalingIntelligence/KernelBench/pull/108"
    what: str = "every input has the same answer, so that a constant passes"


Row = Fault | Waiting | OfTheTask


def rows() -> tuple[Row, ...]:
    """Every report of the list, by its identifier."""
    found: list[Row] = [*FAULTS, *GRADIENT_FAULTS, *DEVICE_FAULTS, *WAITING, OfTheTask()]
    return tuple(sorted(found, key=lambda row: row.identifier))


def class_of(identifier: str) -> str:
    return next(name for name, members in CLASSES.items() if identifier in members)
