"""Task, Candidate and Discovery: what is judged, against what, and what a first look revealed.

Nothing here imports torch. The executable reference lives behind `Program` (see `program.py`).
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Declared:
    """What the task's author promises to use: the declared scope."""

    #: Native sizes are declared; every other size is extended, unless listed.
    sizes: tuple[tuple[tuple[str, int], ...], ...] = ()
    dtypes: tuple[str, ...] = ()
    #: Precision regime required; "" derives it (see `oracle.regimes`).
    regime: str = ""
    training: bool = False
    #: Inputs that the reference itself writes, by argument path.
    in_place: tuple[str, ...] = ()
    #: The task demands that a kernel of the candidate's own does the work.
    kernel: bool = False
    #: The reference is declared random (dropout in training, sampling).
    random: bool = False


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
    #: "triton", "cuda", "torch": what the source seems to be written in.
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
    #: True if an output of the reference shares storage with one of its inputs or parameters.
    reference_aliases: bool = False

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
