"""Versions of the members with one planted fault each: the portable path with a function of its core
replaced, or the public function with a kernel around it; and, for a GPU, a copy of the package with a
line of the native kernels' sources or of what launches them replaced."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path

from tasks import STRONG, Member, candidate

#: The members whose kernels the native faults lie in: those with one gate a head.
SCALAR = ("linear_attention", "retention", "simple_gla", "delta_rule", "gated_delta_rule")


@dataclass(frozen=True, kw_only=True)
class Patch:
    """Text of a file of `gated_recurrence/native` that is replaced, or, without it, what is appended."""

    file: str
    before: str = ""
    after: str


@dataclass(frozen=True, kw_only=True)
class Native:
    """The same fault in the native kernels; `group`: value heads to a head, where they must be many."""

    form: str
    patches: tuple[Patch, ...]
    group: int | None = None


@dataclass(frozen=True, kw_only=True)
class Fault:
    name: str
    #: The form of the task in which it shows, and the gates of which at least one must convict.
    form: str
    gates: tuple[str, ...]
    #: Put before the candidate's module.
    top: str
    #: What is given for q and k.
    heads: str = "q, k"
    #: It lies in what a gate does.
    gated: bool = False
    native: Native

    def fits(self, member: Member, runner: str = "interpret") -> bool:
        reached = runner == "interpret" or member.name in SCALAR
        return reached and (not self.gated or "f" in member.raw)

    def form_on(self, runner: str) -> str:
        return self.form if runner == "interpret" else self.native.form


_PATCH = """
from dataclasses import replace

import gated_recurrence.core.chunk as chunk
import gated_recurrence.core.scan as scan

operands, backward = scan._operands, chunk.backward
"""

_DROPPED_DECAY = """
def last_without_decay(*given):
    found = operands(*given)
    if len(found) > 1:
        flat = torch.zeros_like(found[-1].log_decay)
        found[-1] = replace(found[-1], log_decay=flat, log_erase=flat)
    return found


scan._operands = last_without_decay
"""

_NARROW_SUMS = """
def narrow(x):
    return x.bfloat16().to(x.dtype)


def in_bfloat16(*given):
    return [
        replace(one, log_decay=narrow(one.log_decay), log_erase=narrow(one.log_erase))
        for one in operands(*given)
    ]


scan._operands = in_bfloat16
"""

_OF_THE_SUMS = """
def of_the_sums(*given):
    found = backward(*given)
    after = F.pad(found.g[..., 1:, :], (0, 0, 0, 1))
    return replace(found, g=found.g - after)


chunk.backward = of_the_sums
"""

_SKIPPED = """
class Second(chunk.Chunk):
    pass


def marked(*given):
    found = operands(*given)
    if len(found) > 1:
        names = chunk.Chunk.__dataclass_fields__
        found[1] = Second(**{name: getattr(found[1], name) for name in names})
    return found


def skipping(one, state, d_out, d_next):
    found = backward(one, state, d_out, d_next)
    if isinstance(one, Second):
        kept = one.log_decay[..., -1:, :].exp().to(state.dtype).mT * d_next
        found = replace(found, state=kept)
    return found


scan._operands, chunk.backward = marked, skipping
"""

_ATOMIC = """
import triton
import triton.language as tl


@triton.jit
def add_kernel(d_ptr, out_ptr, heads, group, K: tl.constexpr, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    columns = tl.arange(0, BLOCK)
    d = tl.load(d_ptr + row * K + columns, mask=columns < K, other=0.0)
    tl.atomic_add(out_ptr + (row // group) * K + columns, d, mask=columns < K)


class Spread(torch.autograd.Function):
    @staticmethod
    def forward(ctx, q, group):
        ctx.shape, ctx.dtype = q.shape, q.dtype
        return q.repeat_interleave(group, 2)

    @staticmethod
    def backward(ctx, d):
        out = torch.zeros(ctx.shape, dtype=torch.float32, device=d.device)
        rows, width = d.shape[:3].numel(), d.shape[3]
        if rows:
            heads, group = ctx.shape[2], d.shape[2] // ctx.shape[2]
            block = triton.next_power_of_2(width)
            d = d.float().contiguous()
            add_kernel[(rows,)](d, out, heads, group, K=width, BLOCK=block)
        return out.to(ctx.dtype), None


def spread(q, k, v):
    group = v.shape[2] // q.shape[2]
    return Spread.apply(q, group), k.repeat_interleave(group, 2)
"""

_LAST_CHUNK = Patch(
    file="sm90/prepare.cuh",
    before="    if (g[i] < DEEPEST_GATE) g[i] = DEEPEST_GATE;\n",
    # Not whole and not the first of its sequence.
    after="    if (chunk.z < CHUNK && chunk.w == 0) g[i] = 0.f;\n",
)

_BFLOAT16 = Patch(
    file="sm90/prepare.cuh",
    before="    memory.vectors[0][row] = log_decay[i];\n",
    after="    const uint32_t bits = __float_as_uint(log_decay[i]) + 0x8000u;\n"
    "    log_decay[i] = __uint_as_float(bits & 0xffff0000u);\n"
    "    memory.vectors[0][row] = log_decay[i];\n",
)

_NO_SUM = Patch(
    file="gated_delta_rule.py",
    after="""

_right = _Recurrence.backward


def _of_the_sums(ctx, *given):
    found = list(_right(ctx, *given))
    after = torch.nn.functional.pad(found[3][:, 1:], (0, 0, 0, 1))
    after[:, CHUNK - 1 :: CHUNK] = 0
    found[3] = found[3] - after
    return tuple(found)


_Recurrence.backward = staticmethod(_of_the_sums)
""",
)

# What the last chunk of a sequence, the first that the reverse scan comes to, adds to dS.
_SKIPPED_CHUNK = (
    Patch(
        file="sm90/reverse_scan.cuh",
        before="p.scale * e[",
        after="(step == 0 ? 0.f : p.scale) * e[",
    ),
    Patch(
        file="sm90/reverse_scan.cuh",
        before="pack(-e[i] * across[i], -e[i + 1] * across[i + 1])",
        after="step == 0 ? 0u : pack(-e[i] * across[i], -e[i + 1] * across[i + 1])",
    ),
    Patch(
        file="sm90/reverse_scan.cuh",
        before="p.power * e[",
        after="(step == 0 ? 0.f : p.power) * e[",
    ),
)

_ATOMIC_GROUP = Patch(
    file="gated_delta_rule.py",
    after="""

def _over_group(grad, like):
    if grad.shape == like.shape:
        return grad
    rows = grad.float().reshape(-1, grad.shape[-1])
    count = like.shape[:3].numel()
    to = torch.arange(count, device=grad.device).repeat_interleave(rows.shape[0] // count)
    out = torch.zeros(count, rows.shape[1], dtype=torch.float32, device=grad.device)
    return out.index_add_(0, to, rows).view(like.shape).to(like.dtype)  # by atomics
""",
)

FAULTS: tuple[Fault, ...] = (
    Fault(
        name="dropped decay in the last chunk",
        form="dense",
        gates=("wrong-value", "shape-dependent"),
        top=_PATCH + _DROPPED_DECAY,
        gated=True,
        native=Native(form="dense", patches=(_LAST_CHUNK,)),
    ),
    Fault(
        name="G in bfloat16",
        form="dense",
        gates=("wrong-value",),
        top=_PATCH + _NARROW_SUMS,
        gated=True,
        # At strong gates the sums are great, and so is what bfloat16 takes from their differences.
        native=Native(form=STRONG, patches=(_BFLOAT16,)),
    ),
    Fault(
        name="missing reverse cumsum",
        form="dense",
        gates=("wrong-gradient",),
        top=_PATCH + _OF_THE_SUMS,
        gated=True,
        native=Native(form="dense", patches=(_NO_SUM,)),
    ),
    Fault(
        name="one chunk's dS skipped",
        form="dense",
        gates=("wrong-gradient",),
        top=_PATCH + _SKIPPED,
        native=Native(form="dense", patches=_SKIPPED_CHUNK),
    ),
    Fault(
        name="atomic reduction of dq over the group",
        form="gradients",
        gates=("nondeterministic",),
        top=_ATOMIC,
        heads="*spread(q, k, v)",
        native=Native(form="gradients", patches=(_ATOMIC_GROUP,), group=16),
    ),
)


def plant(fault: Fault, package: Path, folder: Path) -> None:
    """A copy of the package `gated_recurrence` with the native fault, in `folder`.

    Raises:
        ValueError: the package no longer holds what is to be replaced.
    """
    copy = folder / "gated_recurrence"
    shutil.copytree(package, copy, ignore=shutil.ignore_patterns("__pycache__"))
    for patch in fault.native.patches:
        file = copy / "native" / patch.file
        text = file.read_text(encoding="utf-8")
        if patch.before not in text:
            raise ValueError(f"{patch.file} does not hold {patch.before!r}")
        text = text.replace(patch.before, patch.after) if patch.before else text + patch.after
        file.write_text(text, encoding="utf-8")


def broken(member: Member, fault: Fault) -> str:
    """Source of the member's candidate with the fault."""
    return candidate(member, fault.form, top=fault.top, heads=fault.heads)
