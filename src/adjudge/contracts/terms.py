"""What a contract's file holds: the eight parts, each with words for people and what is judged of them.

These classes are the file's shape. pydantic validates against them where the file is read, and the
published JSON Schema is made from them, descriptions included: hence docstrings under the fields.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

#: Read by pydantic. A plain mapping, so that this module imports nothing.
CONFIG = {"extra": "forbid", "use_attribute_docstrings": True, "strict": True}

SizeWords = int | str | list[int | str]
Values = Literal["as-drawn", "finite", "any"]
Determinism = Literal["", "bitwise", "envelope"]
Subnormals = Literal["", "keep", "flush", "either"]
Nonfinite = Literal["propagate", "unspecified"]
Rounding = Literal["as-reference", "either"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """An error that the operation may raise instead of answering."""

    __pydantic_config__ = CONFIG

    exception: str
    """Name of the exception's class, as in "ValueError"."""
    message: str = ""
    """Regular expression that its message must match somewhere; empty allows every message."""
    sizes: dict[str, SizeWords] = field(default_factory=dict)
    """Only where these dimension symbols take these sizes; everywhere if empty."""
    layouts: list[str] = field(default_factory=list)
    """Only under these layouts; under all if empty."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Quantised:
    """A tensor stored in few bits."""

    __pydantic_config__ = CONFIG

    tensor: str
    """An input ("args[0]") or an output ("output", "output[1]")."""
    stored: str
    """The dtype it is stored in: "int8", "float8_e4m3fn"."""
    scale: str = ""
    """The input that holds its scales; empty if it has none, or computes its own."""
    rounding: Rounding = "as-reference"
    """Of an output: "as-reference" holds it to the value that the reference rounds to, "either" also
    accepts the next representable value on either side."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Looser:
    """A tolerance wider than the derived one, for one output. The derived one stays the least."""

    __pydantic_config__ = CONFIG

    output: str
    """Which output: "output" where there is one, else its path, as in "output[1]"."""
    reason: str
    """Why it is needed. Kept in the record of every verdict."""
    atol: float = 0.0
    """Absolute error that is accepted."""
    rtol: float = 0.0
    """Error relative to the float64 answer that is accepted; the two are added."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LooserGradient:
    """A tolerance wider than the derived one, for one gradient. The derived one stays the least."""

    __pydantic_config__ = CONFIG

    of: str
    """The input or parameter whose gradient it is: "args[0]", "weight"."""
    reason: str
    """Why it is needed. Kept in the record of every verdict."""
    atol: float = 0.0
    """Absolute error that is accepted."""
    rtol: float = 0.0
    """Error relative to the float64 gradient that is accepted; the two are added."""


#: Two classes, since the published schema has only what a class itself says of its fields.
Wider = Looser | LooserGradient


@dataclass(frozen=True, slots=True, kw_only=True)
class Resources:
    """What the operation's kernels and calls may take up."""

    __pydantic_config__ = CONFIG

    chips: list[str] = field(default_factory=list)
    """Chips that every kernel must fit in registers, shared memory and tensor memory: "sm_80", "sm_90",
    "sm_100". Kernels are compiled for them where a compiler is present; no GPU is needed."""
    spills: int = 0
    """Loads and stores of spilled registers that one kernel may have on these chips."""
    memory: float | None = None
    """Bytes of tensors alive at the peak of a call, as a multiple of what the reference has on the same
    input; not limited if not given."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScopePart:
    """What the contract covers."""

    __pydantic_config__ = CONFIG

    words: str
    """The part in words."""
    sizes: dict[str, SizeWords] = field(default_factory=dict)
    """Sizes by dimension symbol: 128, [64, 128], "1..4096", "16..4096 by 16", or a list of these. A
    symbol that is not named keeps its native size."""
    layouts: list[str] = field(default_factory=lambda: ["contiguous"])
    """How inputs may lie in memory."""
    ranks: list[int] = field(default_factory=list)
    """Numbers of dimensions, beside its own, that the first input may have: leading dimensions are a
    batch, and the other inputs that share them have as many. 2, 3 or 4."""
    dtypes: list[str] = field(default_factory=list)
    """Float dtypes of the inputs; the reference's own if empty."""
    quantised: list[Quantised] = field(default_factory=list)
    """Tensors stored in few bits."""
    refusals: list[Refusal] = field(default_factory=list)
    """Errors that the operation may raise instead of answering."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PreconditionPart:
    """What must hold of the input before the contract binds."""

    __pydantic_config__ = CONFIG

    words: str
    """The part in words."""
    values: Values = "as-drawn"
    """Which values are within the scope: as the reference's own inputs are drawn, all finite ones, or
    NaN and infinities too."""
    ranges: dict[str, list[float]] = field(default_factory=dict)
    """Least and greatest value of an input, by its path: {"args[0]" = [-10.0, 10.0]}."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PostconditionPart:
    """What a conforming kernel does."""

    __pydantic_config__ = CONFIG

    words: str
    """The part in words."""
    in_place: list[str] = field(default_factory=list)
    """Inputs, parameters and buffers that may be written over."""
    destinations: list[str] = field(default_factory=list)
    """Keyword arguments through which the caller gives the memory of the outputs, one for each output
    of the reference, in order. What the call returns is then ignored."""
    batch_invariant: bool = False
    """A row alone has the bits that it has in a batch."""
    determinism: Determinism = ""
    """"bitwise": the same bits on every run, whatever the reference does; "envelope": runs may differ
    by rounding. If not given, bits repeat wherever the reference's do."""
    subnormals: Subnormals = ""
    """Whether subnormal numbers are kept or flushed to zero."""
    nonfinite: Nonfinite = "propagate"
    """"propagate": NaN and infinities as the reference has them; "unspecified": nothing is promised for
    inputs that hold them."""
    training: bool = False
    """Gradients are promised, and parameters may change between calls."""
    random: bool = False
    """The answer is random (dropout, sampling)."""
    resources: Resources = field(default_factory=Resources)
    """What the kernels and calls may take up."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TolerancePart:
    """How far an answer may be off."""

    __pydantic_config__ = CONFIG

    words: str
    """The part in words."""
    regime: str = ""
    """Precision regime that must hold; derived from the reference if empty."""
    reason: str = ""
    """Why a regime weaker than the derived one is enough. Kept in the record."""
    looser: list[Looser] = field(default_factory=list)
    """Tolerances wider than the derived ones, of outputs."""
    gradients: list[LooserGradient] = field(default_factory=list)
    """Tolerances wider than the derived ones, of gradients: a backward pass may be coarser than the
    forward one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OraclePart:
    """What the answer is compared with."""

    __pydantic_config__ = CONFIG

    words: str
    """The part in words."""
    reference: str = ""
    """File of the reference, relative to this one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasurementPart:
    """How it is measured."""

    __pydantic_config__ = CONFIG

    words: str
    """The part in words."""
    gates: list[str] = field(default_factory=list)
    """The gates that measure it; all of them if empty."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SignaturePart:
    """What a violation looks like."""

    __pydantic_config__ = CONFIG

    words: str
    """The part in words."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """A contract in its eight parts. A part that is only words may be written as a string."""

    __pydantic_config__ = CONFIG

    schema: Literal[1]
    """Version of this format."""
    identifier: str
    """Names the contract: letters, digits, dots and hyphens."""
    scope: ScopePart
    """What the contract covers."""
    precondition: PreconditionPart
    """What must hold of the input before the contract binds."""
    postcondition: PostconditionPart
    """What a conforming kernel does."""
    tolerance: TolerancePart
    """How far an answer may be off."""
    oracle: OraclePart
    """What the answer is compared with."""
    measurement: MeasurementPart
    """How it is measured."""
    signature: SignaturePart
    """What a violation looks like."""
    summary: str = ""
    """One line on what is under contract."""
