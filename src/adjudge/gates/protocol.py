"""What a gate is made of, what it plans from and what it decides on.

A gate is a module with three names: `CONTRACT`, `plan` and `decide`. Both functions are pure: they
touch no device, no process and no file, and are tested without a GPU.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Protocol

from adjudge.contract import Contract, Finding
from adjudge.observation import Demand, Observation
from adjudge.probe import Probe
from adjudge.task import Candidate, Discovery, Task


@dataclass(frozen=True, slots=True, kw_only=True)
class Scene:
    """Everything known before the gates plan."""

    task: Task
    candidate: Candidate
    discovery: Discovery
    #: The crossed probes of this candidate: every pair of factor levels appears in one of them.
    crossed: tuple[Probe, ...]
    runner: str = "interpret"
    #: The gate to which errors at other sizes, where rounding explains them, have been found to belong;
    #: "" leaves that to the evidence.
    by_size: str = ""

    @property
    def ordinary(self) -> Probe:
        """The ordinary run at the base point, the clean baseline of every gate."""
        return Probe(sizes=self.discovery.base)

    @property
    def native(self) -> Probe | None:
        """The ordinary run at the declared sizes, or None where a run there is not affordable."""
        sizes = self.discovery.native
        return None if sizes is None else Probe(sizes=sizes)

    @property
    def owes_gradients(self) -> bool:
        """Whether gradients are asked of the candidate: the task asks for them, or it offers them."""
        return self.discovery.gradients or self.task.declared.training

    def is_declared(self, probe: Probe) -> bool:
        """Whether the probe lies within what the task declares: its own sizes, rank, distribution,
        layout, weights and dtype, and nothing unusual about memory, order or history beyond what
        any caller may see (fill, guard, schedule, repeat, process and calls with other content are
        the machine's and the caller's doing, so they never take a probe out of the scope).
        Gradients, for any cotangent, are declared where the task declares training."""
        native = tuple(sorted(self.task.native.items()))
        sizes_declared = probe.sizes == native or probe.sizes in self.task.declared.sizes
        ordinary = (
            probe.distribution == "declared"
            and probe.special == "none"
            and probe.layout == "contiguous"
            and probe.dtype == "native"
            and probe.weights == "seeded"
            and probe.batch == "whole"
            and probe.rank == 0
            and "parameter" not in probe.history
            and (probe.cotangent == "none" or self.task.declared.training)
        )
        return sizes_declared and ordinary


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """One observation against the oracle, every output and every element."""

    #: "equal" (bit for bit with the native reference), "within" (the envelope holds), "metadata"
    #: (number, dtype or shape of outputs), "class" (NaN, infinities and finite values stand elsewhere
    #: than the oracle's), "value" (beyond the envelope), "undecided" (our side failed; see reason).
    outcome: str
    reason: str = ""
    #: Path of the first offending output.
    where: str = ""
    index: tuple[int, ...] | None = None
    expected: str = ""
    got: str = ""
    bound: str = ""
    #: Largest error over its bound.
    excess: float = 0.0
    #: Root-mean-square error over the root-mean-square envelope, all outputs.
    rms: float = 0.0
    affected: int = 0
    total: int = 0
    #: Elements left out because the oracle is not definite there.
    excluded: int = 0
    beyond_worst_case: bool = False
    #: True if no tolerance was involved (classes, exact lattices, integer outputs).
    exact: bool = False

    @property
    def ok(self) -> bool:
        return self.outcome in ("equal", "within")

    @property
    def broken(self) -> bool:
        return self.outcome in ("metadata", "class", "value")


class Evidence(Protocol):
    """What `decide` reads. Looking something up twice gives the same answer."""

    @property
    def scene(self) -> Scene: ...

    @property
    def observations(self) -> Mapping[Probe, Observation]:
        """Every probe that was run, planned by whichever gate."""
        ...

    @property
    def skipped(self) -> Mapping[Probe, str]:
        """Probes that were planned and not run, with the reason (budget, outside the domain)."""
        ...

    def compare(self, probe: Probe) -> Comparison:
        """The observation of `probe` against the oracle, in the regime that the candidate is held to."""
        ...

    def demands(self, probe: Probe) -> tuple[Demand, ...]:
        """What the kernels of that run ask of the chips that the task declares: one for each kernel and
        chip, and for what could not be read."""
        ...

    def reference_bytes(self, probe: Probe) -> int | None:
        """Bytes of tensors alive at the peak of the reference's own run; None if it does not answer."""
        ...

    @property
    def device(self) -> str:
        """The device that inputs claim to be on in this runner."""
        ...

    @property
    def grade(self) -> str:
        """The strictest precision regime that the ordinary runs meet, "none" if they meet none."""
        ...

    def compare_required(self, probe: Probe) -> Comparison:
        """The same in the regime that the task requires, whatever the candidate's grade."""
        ...

    def compare_exact(self, probe: Probe) -> Comparison | None:
        """The observation against the float64 answer bit for bit; None where an honest kernel might
        round."""
        ...

    def compare_gap(self, probe: Probe) -> Comparison:
        """The observation of a run made to show a loss against the worst that all roundings of the
        required regime come to together."""
        ...

    def rounding_explains(self, probe: Probe) -> bool:
        """Whether the error, too large for the required regime, is within the loosest one."""
        ...

    def homogeneity(self, plain: Probe, scaled: Probe) -> int | None:
        """The degree d for which the float64 answers to inputs that differ by a factor f differ by
        f**d; None if there is none."""
        ...

    def flushed(self, probe: Probe, above: float = 0.0) -> tuple[int, int]:
        """Output elements that are zero where answer and native reference are not, though both are
        subnormal; and how many the latter are. Only those above that share of the least normal
        number count."""
        ...

    def below_required(self) -> Finding | None:
        """The violation for a precision grade below what the task requires, or None.

        Other probes are then convicted only of errors that no precision explains, so that one
        precision fault is one conviction.
        """
        ...

    def reference_aliases(self, probe: Probe) -> bool:
        """Whether an output of the reference shares storage with an input or with its state, where they
        have the probe's sizes and dtypes and lie in memory as they do there; or may, by contract."""
        ...

    def reference_moves(self, probe: Probe, other: Probe) -> bool:
        """Whether the native reference's own bits differ between the two probes.

        Where they do, no candidate owes bit equality, and the envelope decides.
        """
        ...


class Gate(Protocol):
    """A module under `adjudge.gates`."""

    CONTRACT: Contract

    def plan(self, scene: Scene) -> Iterable[Probe]: ...

    def decide(self, evidence: Evidence) -> Finding: ...
