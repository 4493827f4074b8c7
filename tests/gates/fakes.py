"""A docket made by hand, so that `plan` and `decide` are tested without process or device."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from adjudge.contract import Finding
from adjudge.gates.protocol import Comparison, Scene
from adjudge.observation import Demand, Observation, OutputTensor, Status
from adjudge.probe import Probe
from adjudge.task import Candidate, Discovery, Launch, Symbol, Task, TensorSpec

BASE = (("N", 64),)
NATIVE = (("N", 1024),)
LAUNCH = Launch(kernel="k", grid=(1,), constants=(("BLOCK", 64),))


def scene(**changes: Any) -> Scene:
    task = Task(
        name="t",
        frontend="kernelbench",
        source="",
        symbols=(Symbol(name="N", native=1024, axes=(("args[0]", 0),)),),
        inputs=(TensorSpec(name="args[0]", shape=(1024,), dtype="float32"),),
        **changes.pop("task", {}),
    )
    found = {"differentiable": ("args[0]",), "gradients": True, **changes.pop("discovery", {})}
    discovery = Discovery(sizes=BASE, base=BASE, native=NATIVE, launches=(LAUNCH,), **found)
    candidate = Candidate(name="c", source="", entry="ModelNew")
    return Scene(task=task, candidate=candidate, discovery=discovery, crossed=(), **changes)


def output(*values: float, **changes: Any) -> OutputTensor:
    data = np.array(values, dtype=np.float32)
    plain = OutputTensor(path="", data=data, dtype="float32", strides=(1,), device="cuda:0")
    return replace(plain, **changes)


def answer(*values: float, **changes: Any) -> Observation:
    fields = {"outputs": (output(*values),), "structure": "tensor", **changes}
    return Observation(status=Status.ANSWERED, **fields)


WITHIN = Comparison(outcome="within")
WRONG = Comparison(outcome="value", affected=1, total=2, excess=9.0, index=(1,))


@dataclass
class FakeEvidence:
    scene: Scene
    observations: dict[Probe, Observation] = field(default_factory=dict)
    comparisons: dict[Probe, Comparison] = field(default_factory=dict)
    skipped: Mapping[Probe, str] = field(default_factory=dict)
    moves: bool = False
    #: Probes on which the reference's own outputs share storage with its inputs.
    aliasing: set[Probe] = field(default_factory=set)
    device: str = "cuda:0"
    grade: str = "fp32"
    #: What `below_required` gives.
    below: Finding | None = None
    #: Comparisons bit for bit, of probes on which every honest kernel gives the same bits.
    owed: dict[Probe, Comparison] = field(default_factory=dict)
    #: Comparisons in the required regime, where they differ from those in the regime held to.
    required: dict[Probe, Comparison] = field(default_factory=dict)
    rounding: bool = False
    degree: int | None = 1
    zeroed: tuple[int, int] = (0, 4)
    asked: tuple[Demand, ...] = ()
    reference_peak: int | None = None

    def compare(self, probe: Probe) -> Comparison:
        return self.comparisons.get(probe, WITHIN)

    def compare_required(self, probe: Probe) -> Comparison:
        return self.required.get(probe, self.compare(probe))

    def compare_exact(self, probe: Probe) -> Comparison | None:
        return self.owed.get(probe)

    def compare_gap(self, probe: Probe) -> Comparison:
        return self.compare_required(probe)

    def demands(self, probe: Probe) -> tuple[Demand, ...]:
        return self.asked

    def reference_bytes(self, probe: Probe) -> int | None:
        return self.reference_peak

    def rounding_explains(self, probe: Probe) -> bool:
        return self.rounding

    def homogeneity(self, plain: Probe, scaled: Probe) -> int | None:
        return self.degree

    def flushed(self, probe: Probe, above: float = 0.0) -> tuple[int, int]:
        return self.zeroed

    def below_required(self) -> Finding | None:
        return self.below

    def reference_aliases(self, probe: Probe) -> bool:
        return probe in self.aliasing

    def reference_moves(self, probe: Probe, other: Probe) -> bool:
        return self.moves

    def put(self, probe: Probe, observation: Observation, comparison: Comparison = WITHIN) -> Probe:
        self.observations[probe] = observation
        self.comparisons[probe] = comparison
        return probe
