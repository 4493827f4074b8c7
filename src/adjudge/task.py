"""Task, Candidate and Discovery: what is judged, against what, and what a first look revealed.

Nothing here imports torch. The executable reference lives behind `Program` (see `program.py`).
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Container, Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True, kw_only=True)
class Symbol:
    """A dimension symbol: one size that may vary.

    A symbol moves whatever the task's author wrote one number for: several input dimensions that
    share it, and the constructor arguments that go with them.
    """

    name: str
    #: The size at the task's native point.
    native: int
    #: Sizes for which the reference was run on real tensors and answered, ascending.
    proven: tuple[int, ...] = ()
    #: (input name, axis) pairs that move with the symbol.
    axes: tuple[tuple[str, int], ...] = ()
    #: Constructor arguments (positions) that move with the symbol.
    init_args: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class TensorSpec:
    """One tensor input at the native point."""

    #: Argument path: "args[0]", "kwargs['mask']", "args[1][0]" (nested).
    name: str
    shape: tuple[int, ...]
    #: Name as torch prints it without the prefix: "float32", "int64", "bool".
    dtype: str
    #: Least and greatest value the reference's own inputs took (None if empty or complex).
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True, slots=True)
class SizeRange:
    """Sizes from `low` to `high`, both within, `step` apart."""

    low: int
    high: int
    step: int = 1

    def __contains__(self, size: object) -> bool:
        return (
            isinstance(size, int)
            and self.low <= size <= self.high
            and (size - self.low) % self.step == 0
        )

    def __str__(self) -> str:
        if self.low == self.high:
            return str(self.low)
        return f"{self.low}..{self.high}" + (f" by {self.step}" if self.step > 1 else "")

    @property
    def last(self) -> int:
        """The greatest size within."""
        return self.high - (self.high - self.low) % self.step


@dataclass(frozen=True, slots=True)
class SizeScope:
    """The points at which every named symbol has a size of its ranges."""

    ranges: tuple[tuple[str, tuple[SizeRange, ...]], ...] = ()

    def __contains__(self, sizes: object) -> bool:
        assert isinstance(sizes, tuple)
        held = dict(sizes)
        return all(
            any(held.get(name) in allowed for allowed in ranges) for name, ranges in self.ranges
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class AllowedRefusal:
    """An error that may be raised instead of an answer."""

    exception: str
    #: Regular expression, searched in the message.
    message: str = ""
    sizes: SizeScope = SizeScope()
    #: Under these layouts only; under all if empty.
    layouts: tuple[str, ...] = ()

    def covers(
        self, exception: str, message: str, sizes: tuple[tuple[str, int], ...], layout: str
    ) -> bool:
        return (
            exception.rpartition(".")[2] == self.exception
            and re.search(self.message, message) is not None
            and sizes in self.sizes
            and (not self.layouts or layout in self.layouts)
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class LooserTolerance:
    """What is accepted of one output or gradient beyond the derived bound: atol + rtol * |truth|, or,
    of values stored in few bits, `steps` representable values to either side."""

    #: Path in the returned structure: "" for a bare tensor; of a gradient, as in an observation.
    path: str
    reason: str
    atol: float = 0.0
    rtol: float = 0.0
    steps: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Resources:
    """What the operation's kernels and calls may take up."""

    #: Chips that every kernel must fit (`static.chips`), and the loads and stores of spilled registers
    #: that one kernel may have on them.
    chips: tuple[str, ...] = ()
    spills: int = 0
    #: Bytes of tensors alive at the peak of a call, as a multiple of what the reference has; 0 leaves
    #: them open.
    memory: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Declared:
    """What the task's author promises to use: the declared scope."""

    #: Native sizes are declared; every other size is extended, unless it is in here.
    sizes: Container[tuple[tuple[str, int], ...]] = ()
    #: Float dtypes beside the native one.
    dtypes: tuple[str, ...] = ()
    layouts: tuple[str, ...] = ("contiguous",)
    #: Numbers of dimensions of the first input beside its own.
    ranks: tuple[int, ...] = ()
    #: "as-drawn" by the reference's own input functions, every "finite" one, or "any".
    values: str = "as-drawn"
    #: (argument path, least, greatest): a probe with a value beyond is extended.
    ranges: tuple[tuple[str, float, float], ...] = ()
    #: Precision regime required; "" derives it (see `oracle.regimes`).
    regime: str = ""
    #: Gradients are promised, and parameters may change between calls.
    training: bool = False
    #: Inputs and state that may be written over, by path or name.
    in_place: tuple[str, ...] = ()
    #: The task demands that a kernel of the candidate's own does the work.
    kernel: bool = False
    #: Keyword arguments through which the caller gives the memory of the outputs.
    destinations: tuple[str, ...] = ()
    #: The reference is declared random (dropout in training, sampling).
    random: bool = False
    #: A row alone has the bits that it has in a batch.
    batch_invariant: bool = False
    #: "bitwise" whatever the reference does, "envelope", or "": wherever the reference's bits repeat.
    determinism: str = ""
    #: "keep", "flush", "either", or "" where nothing is declared.
    subnormals: str = ""
    #: "propagate", or "unspecified": nothing is promised for inputs that hold NaN or infinities.
    nonfinite: str = "propagate"
    resources: Resources = Resources()
    refusals: tuple[AllowedRefusal, ...] = ()
    looser: tuple[LooserTolerance, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """A reference program, its inputs, its parameters and its declared scope."""

    name: str
    frontend: str
    #: Reference source as text where there is one; shown and hashed, executed by the judge only.
    source: str
    path: str = ""
    symbols: tuple[Symbol, ...] = ()
    inputs: tuple[TensorSpec, ...] = ()
    #: Names, shapes and dtypes of the reference's parameters and buffers at the native point.
    parameters: tuple[TensorSpec, ...] = ()
    declared: Declared = field(default_factory=Declared)
    #: What is doubtful about the task itself: a bad exam is said to be one.
    warnings: tuple[str, ...] = ()

    @property
    def native(self) -> dict[str, int]:
        return {s.name: s.native for s in self.symbols}

    @property
    def digest(self) -> str:
        """SHA-256 over the source and the frontend."""
        return digest_text(f"{self.frontend}\0{self.name}\0{self.source}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """The source under judgement and how to call it. Never imported by the judge."""

    name: str
    source: str
    #: Attribute of the loaded file: a class that is constructed, or a function.
    entry: str
    #: "module" (construct with the task's init arguments, then call) or "function".
    kind: str = "module"
    path: str = ""
    #: "tilelang", "cute", "triton", "cuda" or "torch": what the source seems to be written in.
    language: str = "torch"
    #: Extra files a package-style candidate needs, relative path -> text.
    files: tuple[tuple[str, str], ...] = ()

    @property
    def digest(self) -> str:
        return digest_text(
            "\0".join([self.entry, self.source, *(t for f in self.files for t in f)])
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Launch:
    """One kernel launch as the runner saw it."""

    kernel: str
    grid: tuple[int, ...]
    #: Compile-time constants (block sizes and the like) by name; integers and booleans only.
    constants: tuple[tuple[str, int], ...] = ()
    #: Every parameter by name as Triton types it: "*fp32:16" (a pointer that 16 divides), "i32",
    #: "=1024" (a compile-time constant), "=dtype fp16"; "?" what has no such name.
    parameters: tuple[tuple[str, str], ...] = ()
    #: num_warps, num_stages and the like, where the launch gave them.
    options: tuple[tuple[str, int], ...] = ()
    #: How many autotune configurations the kernel has, and which one ran (-1: not autotuned).
    configs: int = 0
    config: int = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class Discovery:
    """What one scouting run reveals."""

    #: Sizes of the point that was scouted (native, or the smallest point that answers).
    sizes: tuple[tuple[str, int], ...]
    #: Sizes that ordinary probes use: small, and the candidate answers there.
    base: tuple[tuple[str, int], ...]
    #: Sizes of the native point if a run there is affordable, else None.
    native: tuple[tuple[str, int], ...] | None
    launches: tuple[Launch, ...] = ()
    #: Block constants seen at launch, ascending: boundary shapes are built around them.
    blocks: tuple[int, ...] = ()
    configs: int = 0
    #: Elements of all inputs and outputs at the base point, for what a larger point would cost.
    elements: int = 0
    #: Seconds one ordinary run took, for the budget.
    seconds: float = 0.0
    #: How weights are matched: "none", "by name", "by seed", or "unmatched: why".
    weights: str = "none"
    #: Inputs and parameters that the reference itself writes: nobody else is blamed for them.
    reference_writes: tuple[str, ...] = ()
    #: Inputs and parameters, by name, that the reference has a gradient for; none where gradients
    #: were not tried.
    differentiable: tuple[str, ...] = ()
    #: Parameters that it has one for and the candidate is not asked for: which of its own they are is
    #: not known.
    unasked: tuple[str, ...] = ()
    #: Whether the candidate offers gradients: by autograd, by functions or a backward of its own.
    gradients: bool = False

    @property
    def uses_kernels(self) -> bool:
        return bool(self.launches)


def digest_text(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def short_digest(text: str) -> str:
    """Enough of a digest to tell texts apart that nobody has made to collide."""
    return digest_text(text)[:16]


def merged(base: Mapping[str, int], **changes: int) -> dict[str, int]:
    """`base` with some symbols changed."""
    return {**base, **changes}
