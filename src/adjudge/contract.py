"""Contract, Finding and Verdict: what is promised, what one gate found, what all of them say.

Nothing here imports torch or numpy: these records are read by reports and by `adjudge explain`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

from adjudge.probe import Probe

#: Version of the stored record. Readers accept every version up to this one.
SCHEMA = 1


class Outcome(StrEnum):
    """What one gate found."""

    PASS = "pass"
    #: The contract is broken.
    VIOLATION = "violation"
    #: The candidate raised a clear error instead of answering: a narrower scope, not a lie.
    REFUSAL = "refusal"
    #: The gate has nothing to measure here; the reason says why. Never a pass.
    NOT_APPLICABLE = "not_applicable"
    #: Our own machinery or the reference failed. Never counts against the candidate.
    INCONCLUSIVE = "inconclusive"


class Scope(StrEnum):
    """Whether a finding lies within what the task declares, or beyond it."""

    DECLARED = "declared"
    EXTENDED = "extended"


class Standing(StrEnum):
    """The verdict in one word."""

    SOUND = "sound"
    #: Broken only beyond the declared scope.
    FRAGILE = "fragile"
    #: Broken within the declared scope.
    VIOLATING = "violating"
    #: The ordinary answer could not be judged, or time ran out before a gate. Never an acquittal.
    INCONCLUSIVE = "inconclusive"


class Kind(StrEnum):
    """How a gate's violations are established."""

    #: No tolerance anywhere: no choice of threshold can explain the violation away.
    EXACT = "exact"
    #: Judged against the error envelope derived from the reference.
    DERIVED = "derived"
    EXACT_OR_DERIVED = "exact or derived"


@dataclass(frozen=True, slots=True, kw_only=True)
class Contract:
    """The eight parts of a contract, and what names it elsewhere.

    The documentation page, the SARIF rule and `adjudge explain` are all made from this literal.
    """

    identifier: str
    #: What the contract covers: which candidates, inputs, shapes, devices.
    scope: str
    #: What must hold of task and input before the contract binds the candidate.
    precondition: str
    #: What a conforming kernel does.
    postcondition: str
    #: How far an answer may be off, and where that figure comes from.
    tolerance: str
    #: What the answer is compared with.
    oracle: str
    #: How it is measured: the probes, and what is compared.
    measurement: str
    #: What a violation looks like.
    signature: str
    #: One line, naming the offence as a reader would see it.
    summary: str
    kind: Kind
    #: Cross-references to the published batteries (CMP, ORD, PRC, EXC, RES, C-...).
    codes: tuple[str, ...] = ()
    #: Which gates a time budget runs first. 0: a few short runs, or what convicts most often (see
    #: docs/audits); 2: long runs, or what seldom decides.
    cost: int = 1


#: The eight parts, in the order in which they are shown.
PARTS: tuple[str, ...] = (
    "identifier",
    "scope",
    "precondition",
    "postcondition",
    "tolerance",
    "oracle",
    "measurement",
    "signature",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Violation:
    """One broken promise, on the smallest probe found that still shows it."""

    probe: Probe
    #: A short stable word: value, class, crashed, hung, exited, mutated, stale, access, alias, ...
    signature: str
    #: One sentence a person understands.
    message: str
    #: Which output (path in the returned structure), or which input, or which kernel and line.
    where: str = ""
    index: tuple[int, ...] | None = None
    expected: str = ""
    got: str = ""
    bound: str = ""
    #: How many times the bound the error is; None where there is no bound.
    excess: float | None = None
    #: How many elements are affected, out of how many.
    affected: int | None = None
    total: int | None = None
    #: True when the reading exceeds what any summation order could produce.
    beyond_worst_case: bool | None = None
    #: The line that reproduces it.
    replay: str = ""
    #: Digests of the output bytes of the observed run, for the replay to compare with.
    digests: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One gate's result on one candidate."""

    gate: str
    outcome: Outcome
    reason: str
    scope: Scope = Scope.DECLARED
    exact: bool = False
    runner: str = "interpret"
    violation: Violation | None = None
    notes: tuple[str, ...] = ()
    #: Probes read by this gate, and the seconds spent in its decision and shrinking.
    probes: int = 0
    seconds: float = 0.0
    #: Why this violation is accepted, from a file of waivers; "" if it is not.
    waived: str = ""

    def __post_init__(self) -> None:
        if (self.outcome is Outcome.VIOLATION) != (self.violation is not None):
            raise ValueError(f"{self.gate}: a violation, and nothing else, carries evidence")
        if not self.reason:
            raise ValueError(f"{self.gate}: a finding states its reason")


@dataclass(frozen=True, slots=True, kw_only=True)
class Hint:
    """A place in the candidate's source that a reader should look at. Convicts nobody."""

    #: What it looks like: pointer-key, keeps-state, walks-stack, ...
    rule: str
    #: Line of the candidate's source, from 1.
    line: int
    words: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Promise:
    """One declaration of a contract's file, and what came of it in this verdict."""

    #: The field, with its part: "scope.sizes.rows".
    name: str
    #: What is declared.
    words: str
    #: How it acts on the verdict; "" if not at all.
    judged: str = ""
    #: What of it no gate here judges yet.
    waits: str = ""
    #: Why it is declared, where the file must say so.
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Provenance:
    """Everything that went into a verdict, so that someone else can have it again."""

    adjudge: str
    task: str
    candidate: str
    gates: str
    runner: str
    device: str
    versions: tuple[tuple[str, str], ...]
    #: Sandbox layers that held; an empty tuple means no isolation.
    isolation: tuple[str, ...]
    #: How the candidate's weights were matched to the reference's: by name, by seed, or none.
    weights: str = "none"
    #: Digest of the contract's file; "" if there was none.
    contract: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """All findings on one candidate."""

    name: str
    standing: Standing
    findings: tuple[Finding, ...]
    #: The strictest precision regime whose envelope holds, or "none".
    grade: str
    required: str
    provenance: Provenance
    #: What is doubtful about the task itself (constant output, random reference, ...).
    warnings: tuple[str, ...] = ()
    refusals: tuple[str, ...] = ()
    #: Identifier of the contract that was declared; "" if there was none.
    contract: str = ""
    promises: tuple[Promise, ...] = ()
    #: Places in the candidate's source that look like a known hack. They change no standing.
    hints: tuple[Hint, ...] = ()
    #: The candidate's captured standard output and error, bounded.
    stdout: str = ""
    probes: int = 0
    #: Probes that several gates asked for and one run answered.
    shared: int = 0
    seconds: float = 0.0
    schema: int = SCHEMA
    timings: tuple[tuple[str, float], ...] = field(default=())

    @property
    def violations(self) -> tuple[Finding, ...]:
        """Those that are not waived."""
        return tuple(f for f in self.findings if f.outcome is Outcome.VIOLATION and not f.waived)

    @property
    def waived(self) -> tuple[Finding, ...]:
        return tuple(f for f in self.findings if f.waived)


def standing_of(findings: tuple[Finding, ...], *, undecided: bool = False) -> Standing:
    """The verdict's one word.

    A violation always counts. Without one, the candidate is sound only if the ordinary answer
    (`wrong-value`) was really judged: a battery of inconclusive findings acquits nobody.

    Args:
        undecided: the candidate was run on what the task declares, and no answer came of it that
            could be judged; or the time allowed left a gate out.
    """
    violations = [f for f in findings if f.outcome is Outcome.VIOLATION and not f.waived]
    if any(f.scope is Scope.DECLARED for f in violations):
        return Standing.VIOLATING
    if violations:
        return Standing.FRAGILE
    if undecided:
        return Standing.INCONCLUSIVE
    ordinary = next((f for f in findings if f.gate == "wrong-value"), None)
    if ordinary is not None and ordinary.outcome is not Outcome.PASS and not ordinary.waived:
        return Standing.INCONCLUSIVE
    if all(f.outcome in (Outcome.INCONCLUSIVE, Outcome.NOT_APPLICABLE) for f in findings):
        return Standing.INCONCLUSIVE
    return Standing.SOUND
