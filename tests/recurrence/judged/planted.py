"""Versions of the members with one planted fault each: the portable path with a function of its core
replaced, or the public function with a kernel around it."""

from __future__ import annotations

from dataclasses import dataclass

from tasks import Member, candidate


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

    def fits(self, member: Member) -> bool:
        return not self.gated or "f" in member.raw


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

FAULTS: tuple[Fault, ...] = (
    Fault(
        name="dropped decay in the last chunk",
        form="dense",
        gates=("wrong-value", "shape-dependent"),
        top=_PATCH + _DROPPED_DECAY,
        gated=True,
    ),
    Fault(
        name="G in bfloat16",
        form="dense",
        gates=("wrong-value",),
        top=_PATCH + _NARROW_SUMS,
        gated=True,
    ),
    Fault(
        name="missing reverse cumsum",
        form="dense",
        gates=("wrong-gradient",),
        top=_PATCH + _OF_THE_SUMS,
        gated=True,
    ),
    Fault(
        name="one chunk's dS skipped",
        form="dense",
        gates=("wrong-gradient",),
        top=_PATCH + _SKIPPED,
    ),
    Fault(
        name="atomic reduction of dq over the group",
        form="gradients",
        gates=("nondeterministic",),
        top=_ATOMIC,
        heads="*spread(q, k, v)",
    ),
)


def broken(member: Member, fault: Fault) -> str:
    """Source of the member's candidate with the fault."""
    return candidate(member, fault.form, top=fault.top, heads=fault.heads)
