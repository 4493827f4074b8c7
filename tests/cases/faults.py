"""Faults seen in the wild, each as a small case of our own: the fault and its correct twin.

The identifiers are those of a list of public reports; the link stands beside each. A case is three
bodies of `forward(self, x, ...)`; kernels and helpers stand in `top`.
"""

from __future__ import annotations

import tempfile
import textwrap
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from adjudge.contract import Verdict
from adjudge.contracts.draft import draft
from adjudge.contracts.file import ContractFile, load
from adjudge.frontends import kernelbench
from adjudge.judge.verify import Options, verify
from adjudge.program import Program
from adjudge.worker.client import Zygote


@dataclass(frozen=True, kw_only=True)
class Fault:
    identifier: str
    report: str
    what: str
    #: The gates of which at least one must convict; the first is the fault's own.
    gates: tuple[str, ...]
    inputs: str
    reference: str
    correct: str
    broken: str
    arguments: str = "x"
    top: str = ""
    #: Bodies of __init__ beyond super().
    init: str = "pass"
    init_broken: str = ""
    broken_top: str = ""
    #: The task demands that a kernel of the candidate's own does the work.
    needs_kernel: bool = False
    #: What a contract's postcondition declares beyond the reference; there is no contract without.
    declares: str = ""
    #: Whether it shows only past 2**16 rows.
    at_scale: bool = False

    def reference_source(self) -> str:
        demand = "REQUIRES_KERNEL = True\n" if self.needs_kernel else ""
        return (
            demand
            + _module("Model", self.reference, self, self.init)
            + (
                f"\n\ndef get_inputs():\n    return [{self.inputs}]\n"
                "\n\ndef get_init_inputs():\n    return []\n"
            )
        )

    def candidate_source(self, half: str) -> str:
        body = self.correct if half == "correct" else self.broken
        init = (self.init_broken or self.init) if half == "broken" else self.init
        top = self.broken_top if half == "broken" else ""
        return _module("ModelNew", body, self, init, self.top + top)


def _module(name: str, body: str, fault: Fault, init: str, top: str = "") -> str:
    parts = [
        "import torch",
        "import torch.nn as nn",
        "import torch.nn.functional as F",
        "rows = 8",
        "columns = 64",
        "inner = 128",
    ]
    if top:
        parts += ["import triton", "import triton.language as tl", textwrap.dedent(top)]
    parts += [
        f"class {name}(nn.Module):",
        "    def __init__(self):",
        "        super().__init__()",
        textwrap.indent(textwrap.dedent(init).strip(), " " * 8),
        f"    def forward(self, {fault.arguments}):",
        textwrap.indent(textwrap.dedent(body).strip(), " " * 8),
    ]
    return "\n".join(parts) + "\n"


def judged(fault: Fault, half: str, zygote: Zygote, **how: Any) -> Verdict:
    """The verdict on "broken" or "correct".

    Args:
        how: options of the verdict.
    """
    program, candidate = kernelbench.from_source(
        fault.reference_source(), fault.candidate_source(half), f"{fault.identifier}-{half}"
    )
    if fault.declares:
        how["contract"] = _contract(fault, program)
    return verify(program, candidate, Options(zygote=zygote, examine=False, **how))


def _contract(fault: Fault, program: Program) -> ContractFile:
    """The contract that is drafted from the reference, with what the case declares."""
    text = draft(program).replace("[postcondition]", f"[postcondition]\n{fault.declares}")
    assert fault.declares in text
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "contract.toml"
        path.write_text(text, encoding="utf-8")
        return load(path)


def shown(verdict: Verdict) -> list[Any]:
    """What to read of a verdict that convicts an honest half."""
    return [(f.gate, f.violation and f.violation.probe, f.reason) for f in verdict.violations]


MATRIX = "torch.randn(rows, columns)"

FAULTS: tuple[Fault, ...] = (
    Fault(
        identifier="S01",
        report="https://github.com/triton-lang/triton/pull/7349",
        what="a maximum over a row returns the operand that is not NaN",
        gates=("drops-nonfinite",),
        inputs=MATRIX,
        reference="return x.amax(dim=1)",
        top="""
            @triton.jit
            def row_max(x_ptr, out_ptr, columns, BLOCK: tl.constexpr, PROPAGATE: tl.constexpr):
                row = tl.program_id(0)
                offsets = tl.arange(0, BLOCK)
                mask = offsets < columns
                x = tl.load(x_ptr + row * columns + offsets, mask=mask, other=float("-inf"))
                top = tl.max(x, axis=0)
                if PROPAGATE:
                    missing = tl.sum((x != x).to(tl.int32), axis=0)
                    top = tl.where(missing > 0, float("nan"), top)
                tl.store(out_ptr + row, top)

            def run(x, propagate):
                x = x.contiguous()
                if not x.shape[1]:
                    raise ValueError("the maximum of an empty row")
                out = torch.empty(x.shape[0], dtype=x.dtype, device=x.device)
                if x.shape[0]:
                    block = triton.next_power_of_2(x.shape[1])
                    row_max[(x.shape[0],)](x, out, x.shape[1], BLOCK=block, PROPAGATE=propagate)
                return out
        """,
        correct="return run(x, True)",
        broken="return run(x, False)",
    ),
    Fault(
        identifier="S02",
        report="https://github.com/NVIDIA/TensorRT-LLM/pull/18082",
        what="squared ReLU turns a NaN into zero",
        gates=("drops-nonfinite",),
        inputs=MATRIX,
        reference="return torch.relu(x) ** 2",
        correct="y = torch.where(x < 0, 0.0, x)\nreturn y * y",
        broken="y = torch.where(x > 0, x, 0.0)\nreturn y * y",
    ),
    Fault(
        identifier="S03",
        report="https://github.com/NVIDIA/TensorRT-LLM/issues/17477",
        what="in a row that is masked altogether, the sentinel attends to the masked keys",
        gates=("wrong-value",),
        arguments="x, seen",
        inputs=f"{MATRIX}, torch.randint(0, 2, (rows, columns)).bool()",
        reference="return torch.softmax(x.masked_fill(~seen, float('-inf')), dim=-1)",
        correct="""
            y = x.masked_fill(~seen, float("-inf"))
            p = torch.exp(y - y.amax(-1, keepdim=True))
            return p / p.sum(-1, keepdim=True)
        """,
        broken="""
            y = x.masked_fill(~seen, -3e38)
            p = torch.exp(y - y.amax(-1, keepdim=True))
            return p / p.sum(-1, keepdim=True)
        """,
    ),
    Fault(
        identifier="S04",
        report="https://github.com/fla-org/flash-linear-attention/issues/461",
        what="entries are masked by the sign of an exponent that may be exactly zero",
        gates=("wrong-value",),
        arguments="x, g",
        inputs="torch.randn(columns), torch.rand(columns)",
        reference="""
            total = torch.cumsum(-g.abs(), 0)
            decay = torch.exp((total[:, None] - total[None, :]).tril())
            return decay.tril() @ x
        """,
        top="""
            @triton.jit
            def decayed(x_ptr, total_ptr, out_ptr, n, ROWS: tl.constexpr, BLOCK: tl.constexpr,
                        BY_INDEX: tl.constexpr):
                i = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
                j = tl.arange(0, BLOCK)
                here = tl.load(total_ptr + i, mask=i < n, other=0.0)
                there = tl.load(total_ptr + j, mask=j < n, other=0.0)
                x = tl.load(x_ptr + j, mask=j < n, other=0.0).to(tl.float32)
                exponent = here[:, None] - there[None, :]
                if BY_INDEX:
                    past = i[:, None] >= j[None, :]
                else:
                    past = (exponent < 0) | (i[:, None] == j[None, :])
                weight = tl.where(past, tl.exp(tl.where(past, exponent, 0.0)), 0.0)
                tl.store(out_ptr + i, tl.sum(weight * x[None, :], axis=1), mask=i < n)

            def run(x, g, by_index):
                total = torch.cumsum(-g.abs().float(), 0)
                out = torch.empty(x.shape, dtype=x.dtype, device=x.device)
                n = x.numel()
                if n:
                    block = triton.next_power_of_2(n)
                    grid = (triton.cdiv(n, 16),)
                    decayed[grid](
                        x.contiguous(), total, out, n, ROWS=16, BLOCK=block, BY_INDEX=by_index
                    )
                return out
        """,
        correct="return run(x, g, True)",
        broken="return run(x, g, False)",
    ),
    Fault(
        identifier="S05",
        report="https://github.com/Dao-AILab/flash-attention/issues/2082",
        what="a tile that is masked altogether leaves zero as the running maximum",
        gates=("wrong-value",),
        arguments="x, v",
        inputs=f"{MATRIX}, torch.randn(columns)",
        reference="""
            later = torch.ones(x.shape, dtype=torch.bool, device=x.device).triu(1)
            return torch.softmax(x.masked_fill(later, float("-inf")), dim=-1) @ v
        """,
        top="""
            @triton.jit
            def attend(x_ptr, v_ptr, out_ptr, n, TILES: tl.constexpr, TILE: tl.constexpr,
                       KEPT: tl.constexpr):
                row = tl.program_id(0)
                top, total, sum_ = float("-inf"), 0.0, 0.0
                for tile in range(TILES):
                    j = (TILES - 1 - tile) * TILE + tl.arange(0, TILE)
                    seen = (j < n) & (j <= row)
                    x = tl.load(x_ptr + row * n + j, mask=seen, other=float("-inf")).to(tl.float32)
                    v = tl.load(v_ptr + j, mask=seen, other=0.0).to(tl.float32)
                    larger = tl.maximum(top, tl.max(x, axis=0))
                    finite = tl.where(larger == float("-inf"), 0.0, larger)
                    p = tl.exp(x - finite)
                    shrunk = tl.exp(top - finite)
                    total = total * shrunk + tl.sum(p, axis=0)
                    sum_ = sum_ * shrunk + tl.sum(p * v, axis=0)
                    if KEPT:
                        top = finite
                    else:
                        top = larger
                if KEPT:
                    total = tl.where(total == 0, 1.0, total)
                tl.store(out_ptr + row, sum_ / total)

            def run(x, v, kept):
                if not x.shape[1]:
                    raise ValueError("there is nothing to attend to")
                x, v = x.contiguous(), v.contiguous()
                out = torch.empty(x.shape[0], dtype=x.dtype, device=x.device)
                if x.shape[0]:
                    tiles = triton.cdiv(x.shape[1], 16)
                    attend[(x.shape[0],)](x, v, out, x.shape[1], TILES=tiles, TILE=16, KEPT=kept)
                return out
        """,
        correct="return run(x, v, False)",
        broken="return run(x, v, True)",
    ),
    Fault(
        identifier="S06",
        report="https://github.com/pytorch/pytorch/issues/40302",
        what="a one-pass variance cancels where the mean is large",
        gates=("cancellation",),
        inputs=MATRIX,
        reference="return F.layer_norm(x, x.shape[-1:])",
        correct="""
            y = x.float() - x.float().mean(-1, keepdim=True)
            return (y / torch.sqrt((y * y).mean(-1, keepdim=True) + 1e-5)).to(x.dtype)
        """,
        broken="""
            y = x.float()
            mean = y.mean(-1, keepdim=True)
            variance = (y * y).mean(-1, keepdim=True) - mean * mean
            return ((y - mean) / torch.sqrt(variance + 1e-5)).to(x.dtype)
        """,
    ),
    Fault(
        identifier="S07",
        report="https://github.com/fla-org/flash-linear-attention/issues/215",
        what="factored decays overflow, and infinity times zero is NaN",
        gates=("wrong-value",),
        arguments="x, g",
        inputs="torch.randn(columns), torch.rand(columns)",
        reference="""
            total = torch.cumsum(-g.abs(), 0)
            decay = torch.exp((total[:, None] - total[None, :]).tril())
            return (decay.tril() * x[None, :]).sum(1)
        """,
        correct="""
            total = torch.cumsum(-g.abs(), 0)
            decay = torch.exp((total[:, None] - total[None, :]).tril())
            return (decay.tril() @ x[:, None])[:, 0]
        """,
        broken="""
            total = torch.cumsum(-g.abs(), 0)
            return torch.exp(total) * torch.cumsum(torch.exp(-total) * x, 0)
        """,
    ),
    Fault(
        identifier="S08",
        report="https://github.com/triton-lang/triton/issues/619",
        what="an integer division rounds towards zero",
        gates=("wrong-value",),
        inputs="100 * torch.rand(rows, columns)",
        reference="""
            whole = torch.nan_to_num(x).clamp(-1e4, 1e4).to(torch.int32)
            return torch.div(whole, 3, rounding_mode="floor")
        """,
        top="""
            @triton.jit
            def divide(x_ptr, out_ptr, n, by, BLOCK: tl.constexpr, FLOOR: tl.constexpr):
                offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
                x = tl.load(x_ptr + offsets, mask=offsets < n, other=0)
                quotient = x // by
                if FLOOR:
                    quotient -= ((quotient * by != x) & (x < 0)).to(tl.int32)
                tl.store(out_ptr + offsets, quotient, mask=offsets < n)

            def run(x, floor):
                whole = torch.nan_to_num(x).clamp(-1e4, 1e4).to(torch.int32).contiguous()
                out = torch.empty(x.shape, dtype=torch.int32, device=x.device)
                if x.numel():
                    grid = (triton.cdiv(x.numel(), 256),)
                    divide[grid](whole, out, x.numel(), 3, BLOCK=256, FLOOR=floor)
                return out
        """,
        correct="return run(x, True)",
        broken="return run(x, False)",
    ),
    Fault(
        identifier="S09",
        report="https://github.com/triton-lang/triton/issues/1800",
        what="a float32 product takes its operands in tf32",
        gates=("narrow-accumulator",),
        arguments="x, w",
        inputs=f"{MATRIX}, torch.randn(columns, inner)",
        reference="return x @ w",
        top="""
            def cut(x):
                if x.dtype != torch.float32:
                    return x
                bits = x.contiguous().view(torch.int32)
                return ((bits + 0x1000) & ~0x1FFF).view(torch.float32)
        """,
        correct="return torch.einsum('ij,jk->ik', x, w)",
        broken="return cut(x) @ cut(w)",
    ),
    Fault(
        identifier="S10",
        report="https://deep-reinforce.com/defense_kernel_hack.html",
        what="the work is done in half precision and the result cast back",
        gates=("narrow-accumulator",),
        arguments="x, w",
        inputs="torch.rand(rows, columns), torch.rand(columns, inner)",
        reference="return x @ w",
        correct="return (w.t() @ x.t()).t().contiguous()",
        broken="return (x.bfloat16() @ w.bfloat16()).to(x.dtype)",
    ),
    Fault(
        identifier="S11",
        report="https://github.com/fla-org/flash-linear-attention/issues/1187",
        what="a recurrent state is kept in half precision",
        # Nothing is summed: the state is a chain of products and additions of two terms.
        gates=("wrong-value",),
        inputs="torch.rand(columns, rows)",
        reference="""
            state, out = torch.zeros_like(x[:1]), []
            for row in x.split(1):
                state = 0.9 * state + row
                out.append(state)
            return torch.cat(out) if out else x.clone()
        """,
        correct="""
            state, out = torch.zeros_like(x[:1]), []
            for row in x.split(1):
                state = torch.add(row, state, alpha=0.9)
                out.append(state)
            return torch.cat(out) if out else x.clone()
        """,
        broken="""
            state, out = torch.zeros_like(x[:1]).half(), []
            for row in x.split(1):
                state = (0.9 * state + row).half()
                out.append(state.to(x.dtype))
            return torch.cat(out) if out else x.clone()
        """,
    ),
    Fault(
        identifier="S12",
        report="https://github.com/huggingface/kernels-community/issues/106",
        what="flat indexing over half of a chunked tensor",
        gates=("layout-dependent", "out-of-bounds"),
        inputs=MATRIX,
        reference="return F.silu(x)",
        top="""
            @triton.jit
            def silu(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
                offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
                x = tl.load(x_ptr + offsets, mask=offsets < n).to(tl.float32)
                tl.store(out_ptr + offsets, x / (1 + tl.exp(-x)), mask=offsets < n)

            def run(x):
                out = torch.empty(x.shape, dtype=x.dtype, device=x.device)
                if x.numel():
                    silu[(triton.cdiv(x.numel(), 256),)](x, out, x.numel(), BLOCK=256)
                return out
        """,
        correct="return run(x.contiguous())",
        broken="return run(x)",
    ),
    Fault(
        identifier="S13",
        report="https://github.com/bitsandbytes-foundation/bitsandbytes/issues/1690",
        what="a slice is scaled in the order of its storage",
        gates=("layout-dependent",),
        inputs=MATRIX,
        reference="return x / x.abs().amax(dim=1, keepdim=True)",
        correct="return x / torch.maximum(x.amax(1, keepdim=True), (-x).amax(1, keepdim=True))",
        broken="""
            if x.storage_offset() + x.numel() > x.untyped_storage().nbytes() // 4:
                raise ValueError("too little storage")
            flat = torch.as_strided(x, x.shape, (x.shape[1], 1), x.storage_offset())
            return flat / flat.abs().amax(dim=1, keepdim=True)
        """,
    ),
    Fault(
        identifier="S14",
        report="https://github.com/pytorch/torchtitan/pull/3771",
        what="a view of integer offsets is read as if it were dense",
        gates=("layout-dependent",),
        arguments="x, index",
        inputs="torch.randn(columns, rows), torch.randint(0, columns, (inner,))",
        reference="return x[index]",
        correct="return torch.index_select(x, 0, index.contiguous())",
        broken="""
            room = index.untyped_storage().nbytes() // 8 - index.storage_offset()
            dense = torch.as_strided(index, (min(len(index), room),), (1,))
            return torch.index_select(x, 0, dense % max(x.shape[0], 1))
        """,
    ),
    Fault(
        identifier="S15",
        report="https://github.com/pytorch/pytorch/issues/191937",
        what="expanded values are read as if dense where one key is left over after tiles of 32",
        gates=("layout-dependent", "out-of-bounds"),
        arguments="p, v",
        inputs="torch.rand(4, 33), torch.randn(4, 33, 16)",
        reference="return (p[:, :, None] * v).sum(dim=1)",
        top="""
            @triton.jit
            def weigh(
                p_ptr, v_ptr, out_ptr, keys, whole, columns, head_stride, key_stride, column_stride,
                last_head, last_key, last_column, TILES: tl.constexpr, BLOCK: tl.constexpr,
            ):
                head = tl.program_id(0).to(tl.int64)
                column = tl.arange(0, BLOCK).to(tl.int64)
                inside = column < columns
                total = tl.zeros((BLOCK,), dtype=tl.float32)
                for tile in range(TILES):
                    key = tile * 32 + tl.arange(0, 32).to(tl.int64)
                    p = tl.load(p_ptr + head * keys + key, mask=key < whole, other=0.0)
                    at = key[:, None] * key_stride + column[None, :] * column_stride
                    mask = (key < whole)[:, None] & inside[None, :]
                    v = tl.load(v_ptr + head * head_stride + at, mask=mask, other=0.0)
                    total += tl.sum(p[:, None] * v, axis=0)
                if whole < keys:
                    at = head * last_head + whole.to(tl.int64) * last_key + column * last_column
                    v = tl.load(v_ptr + at, mask=inside, other=0.0)
                    total += tl.load(p_ptr + head * keys + whole) * v
                tl.store(out_ptr + head * columns + column, total, mask=inside)

            def run(p, v, dense):
                p = p.contiguous()
                heads, keys, columns = v.shape
                whole = keys - (keys % 32 == 1)
                out = torch.empty((heads, columns), dtype=v.dtype, device=v.device)
                last = (keys * columns, columns, 1) if dense else v.stride()
                if out.numel():
                    weigh[(heads,)](
                        p, v, out, keys, whole, columns, *v.stride(), *last,
                        TILES=triton.cdiv(whole, 32), BLOCK=triton.next_power_of_2(columns),
                    )
                return out
        """,
        correct="return run(p, v, False)",
        broken="return run(p, v, True)",
    ),
    Fault(
        identifier="S16",
        report="https://github.com/pytorch/pytorch/issues/178871",
        what="an atomic addition without a mask: lanes past the end add as well",
        gates=("out-of-bounds", "shape-dependent"),
        inputs="torch.randn(columns)",
        reference="return (x > 0).float()",
        top="""
            @triton.jit
            def mark(x_ptr, out_ptr, n, BLOCK: tl.constexpr, MASKED: tl.constexpr):
                offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
                x = tl.load(x_ptr + offsets, mask=offsets < n, other=0.0)
                value = tl.where(x > 0, 1.0, 0.0)
                if MASKED:
                    tl.atomic_add(out_ptr + offsets, value, mask=offsets < n)
                else:
                    tl.atomic_add(out_ptr + offsets, value)

            def run(x, masked):
                x = x.contiguous()
                out = torch.zeros(x.shape, device=x.device)
                if x.numel():
                    mark[(triton.cdiv(x.numel(), 32),)](x, out, x.numel(), BLOCK=32, MASKED=masked)
                return out
        """,
        correct="return run(x, True)",
        broken="return run(x, False)",
    ),
    Fault(
        identifier="S17",
        report="https://github.com/thunlp/TritonBench/issues/12",
        what="a tile is copied without boundary masks",
        gates=("out-of-bounds",),
        inputs=MATRIX,
        reference="return x.t().contiguous()",
        top="""
            @triton.jit
            def transpose(x_ptr, out_ptr, m, n, B: tl.constexpr, MASKED: tl.constexpr):
                i = tl.program_id(0) * B + tl.arange(0, B)
                j = tl.program_id(1) * B + tl.arange(0, B)
                inside = (i[:, None] < m) & (j[None, :] < n)
                if not MASKED:
                    inside = (i[:, None] >= 0) & (j[None, :] >= 0)
                x = tl.load(x_ptr + i[:, None] * n + j[None, :], mask=inside)
                tl.store(out_ptr + j[None, :] * m + i[:, None], x, mask=inside)

            def run(x, masked):
                x = x.contiguous()
                m, n = x.shape
                out = torch.empty(n, m, dtype=x.dtype, device=x.device)
                if x.numel():
                    grid = (triton.cdiv(m, 8), triton.cdiv(n, 8))
                    transpose[grid](x, out, m, n, B=8, MASKED=masked)
                return out
        """,
        correct="return run(x, True)",
        broken="return run(x, False)",
    ),
    Fault(
        identifier="S18",
        report="https://github.com/linkedin/Liger-Kernel/pull/519",
        what="padded lanes become minus the mean and pollute the variance",
        gates=("shape-dependent", "order-bound"),
        inputs=MATRIX,
        reference="return x.var(dim=-1, correction=0)",
        top="""
            def run(x, masked):
                rows, columns = x.shape
                if not columns:
                    raise ValueError("the variance of an empty row")
                block = 1 << (columns - 1).bit_length()
                padded = F.pad(x, (0, block - columns))
                centred = padded - x.sum(1, keepdim=True) / columns
                if masked:
                    centred[:, columns:] = 0
                return (centred * centred).sum(1) / columns
        """,
        correct="return run(x, True)",
        broken="return run(x, False)",
    ),
    Fault(
        identifier="S19",
        report="https://github.com/NVIDIA/apex/issues/411",
        what="the grid is cut to 65,535 rows",
        gates=("shape-dependent",),
        at_scale=True,
        inputs=MATRIX,
        reference="return x / x.abs().sum(dim=1, keepdim=True)",
        top="""
            @triton.jit
            def normalise(x_ptr, out_ptr, m, n, ROWS: tl.constexpr, BLOCK: tl.constexpr):
                i = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
                j = tl.arange(0, BLOCK)
                inside = (i[:, None] < m) & (j[None, :] < n)
                where = i[:, None] * n + j[None, :]
                x = tl.load(x_ptr + where, mask=inside, other=0.0).to(tl.float32)
                total = tl.sum(tl.abs(x), axis=1)
                tl.store(out_ptr + where, x / total[:, None], mask=inside)

            def run(x, most):
                x = x.contiguous()
                m, n = x.shape
                out = torch.empty(m, n, dtype=x.dtype, device=x.device)
                if x.numel():
                    grid = (triton.cdiv(min(m, most), 256),)
                    block = triton.next_power_of_2(n)
                    normalise[grid](x, out, m, n, ROWS=256, BLOCK=block)
                return out
        """,
        correct="return run(x, x.shape[0])",
        broken="return run(x, 65535)",
    ),
    Fault(
        identifier="S20",
        report="https://github.com/fla-org/flash-linear-attention/issues/906",
        what="a mask ends at token 65,536",
        gates=("shape-dependent",),
        at_scale=True,
        arguments="x, gate",
        inputs=f"{MATRIX}, torch.rand(columns)",
        reference="return x * torch.sigmoid(gate)",
        top="""
            @triton.jit
            def gated(x_ptr, gate_ptr, out_ptr, m, n, END: tl.constexpr, TOKENS: tl.constexpr,
                      BLOCK: tl.constexpr):
                i = tl.program_id(0) * TOKENS + tl.arange(0, TOKENS)
                j = tl.arange(0, BLOCK)
                inside = (i[:, None] < m) & (j[None, :] < n)
                if END:
                    inside = inside & (i[:, None] < END)
                gate = tl.load(gate_ptr + j, mask=j < n, other=0.0).to(tl.float32)
                where = i[:, None] * n + j[None, :]
                x = tl.load(x_ptr + where, mask=inside, other=0.0).to(tl.float32)
                tl.store(out_ptr + where, x / (1 + tl.exp(-gate))[None, :], mask=inside)

            def run(x, gate, end):
                x, gate = x.contiguous(), gate.contiguous()
                m, n = x.shape
                out = torch.empty(m, n, dtype=x.dtype, device=x.device)
                if x.numel():
                    block = triton.next_power_of_2(n)
                    grid = (triton.cdiv(m, 256),)
                    gated[grid](x, gate, out, m, n, END=end, TOKENS=256, BLOCK=block)
                return out
        """,
        correct="return run(x, gate, 0)",
        broken="return run(x, gate, 65536)",
    ),
    Fault(
        identifier="S21",
        report="https://github.com/NVIDIA/cutlass/issues/3536",
        what="the tail of a sum is dropped for some numbers of tiles",
        gates=("shape-dependent", "order-bound"),
        inputs=MATRIX,
        reference="return x.sum(dim=1)",
        correct="""
            tiles = x.shape[1] // 8
            return x[:, : tiles * 8].sum(1) + x[:, tiles * 8 :].sum(1)
        """,
        broken="""
            tiles = x.shape[1] // 8
            total = x[:, : tiles * 8].sum(1)
            return total if tiles and tiles % 4 == 0 else total + x[:, tiles * 8 :].sum(1)
        """,
    ),
    Fault(
        identifier="S22",
        report="https://github.com/tile-ai/tilelang/issues/2542",
        what="a butterfly over a width that is no power of two drops lanes",
        gates=("shape-dependent", "order-bound"),
        inputs=MATRIX,
        reference="return x.sum(dim=1)",
        correct="""
            kind, x = x.dtype, x.float()
            while x.shape[1] > 1:
                half = (x.shape[1] + 1) // 2
                x = x[:, :half] + F.pad(x[:, half:], (0, 2 * half - x.shape[1]))
            return x.sum(1).to(kind)
        """,
        broken="""
            kind, x = x.dtype, x.float()
            while x.shape[1] > 1:
                half = x.shape[1] // 2
                x = x[:, :half] + x[:, half : 2 * half]
            return x.sum(1).to(kind)
        """,
    ),
    Fault(
        identifier="S23",
        report="https://github.com/triton-lang/triton/pull/10427",
        what="a product over nothing is returned as memory that nobody wrote",
        gates=("stale-output",),
        arguments="x, w",
        inputs=f"{MATRIX}, torch.randn(columns, inner)",
        reference="return x @ w",
        top="""
            @triton.jit
            def product(x_ptr, w_ptr, out_ptr, m, n, k, B: tl.constexpr):
                i = tl.program_id(0) * B + tl.arange(0, B)
                j = tl.program_id(1) * B + tl.arange(0, B)
                total = tl.zeros((B, B), dtype=tl.float32)
                for start in range(0, k, B):
                    inner = start + tl.arange(0, B)
                    left = (i[:, None] < m) & (inner[None, :] < k)
                    right = (inner[:, None] < k) & (j[None, :] < n)
                    x = tl.load(x_ptr + i[:, None] * k + inner[None, :], mask=left, other=0.0)
                    w = tl.load(w_ptr + inner[:, None] * n + j[None, :], mask=right, other=0.0)
                    total = tl.dot(x, w, total, input_precision="ieee")
                inside = (i[:, None] < m) & (j[None, :] < n)
                tl.store(out_ptr + i[:, None] * n + j[None, :], total, mask=inside)

            def run(x, w, leaves_early):
                x, w = x.contiguous(), w.contiguous()
                (m, k), n = x.shape, w.shape[1]
                out = torch.empty(m, n, dtype=x.dtype, device=x.device)
                if leaves_early and not m * n * k:
                    return out
                if m * n:
                    product[(triton.cdiv(m, 16), triton.cdiv(n, 16))](x, w, out, m, n, k, B=16)
                return out
        """,
        correct="return run(x, w, False)",
        broken="return run(x, w, True)",
    ),
    Fault(
        identifier="S24",
        report="https://github.com/linkedin/Liger-Kernel/issues/272",
        what="the forward pass stores the gradient over its input",
        gates=("mutates-input",),
        inputs=MATRIX,
        reference="return torch.logsumexp(x, dim=1)",
        correct="return torch.logsumexp(x.clone(), dim=1)",
        broken="""
            out = torch.logsumexp(x, dim=1)
            x.data.copy_(torch.softmax(x, dim=1))
            return out
        """,
    ),
    Fault(
        identifier="S26",
        report="https://github.com/vllm-project/vllm/pull/38148",
        what="rows of padding that nobody wrote reach the answer",
        gates=("stale-output",),
        inputs=MATRIX,
        reference="return x.sum(dim=0)",
        correct="""
            padded = torch.zeros(128, x.shape[1], dtype=x.dtype, device=x.device)
            padded[: x.shape[0]] = x
            return padded.sum(dim=0)
        """,
        broken="""
            padded = torch.empty(128, x.shape[1], dtype=x.dtype, device=x.device)
            padded[: x.shape[0]] = x
            return padded.sum(dim=0)
        """,
    ),
    Fault(
        identifier="S27",
        report="https://github.com/ByteDance-Seed/Triton-distributed/pull/184",
        what="a sum is accumulated into memory that nobody cleared",
        gates=("stale-output",),
        inputs=MATRIX,
        reference="return x.sum(dim=0)",
        correct="out = torch.zeros_like(x[0] if len(x) else x.sum(0))\nreturn out.add_(x.sum(0))",
        broken="out = torch.empty_like(x[0] if len(x) else x.sum(0))\nreturn out.add_(x.sum(0))",
    ),
    Fault(
        identifier="S28",
        report="https://github.com/triton-lang/triton/issues/9230",
        what="one configuration leaves a hole, which another one fills while they are tuned",
        gates=("schedule-dependent",),
        inputs=MATRIX,
        reference="return x + x",
        top="""
            BLOCKS = [triton.Config({"BLOCK": 128}), triton.Config({"BLOCK": 64})]

            @triton.autotune(configs=BLOCKS, key=["n"])
            @triton.jit
            def double(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
                offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
                x = tl.load(x_ptr + offsets, mask=offsets < n)
                tl.store(out_ptr + offsets, x + x, mask=offsets < n)

            def run(x, grid):
                x = x.contiguous()
                out = torch.empty(x.shape, dtype=x.dtype, device=x.device)
                if x.numel():
                    double[grid](x, out, x.numel())
                return out
        """,
        correct="return run(x, lambda meta: (triton.cdiv(x.numel(), meta['BLOCK']),))",
        broken="return run(x, lambda meta: (triton.cdiv(x.numel(), 128),))",
    ),
    Fault(
        identifier="S29",
        report="https://github.com/Dao-AILab/flash-attention/issues/414",
        what="tiles are summed by atomics, and the bits of a sum hang on which comes first",
        gates=("nondeterministic",),
        inputs=MATRIX,
        reference="return x.sum(dim=0)",
        top="""
            @triton.jit
            def add_rows(x_ptr, out_ptr, m, n, BLOCK: tl.constexpr, ATOMIC: tl.constexpr):
                j = tl.arange(0, BLOCK)
                if ATOMIC:
                    where = tl.program_id(0) * n + j
                    x = tl.load(x_ptr + where, mask=j < n, other=0.0)
                    tl.atomic_add(out_ptr + j, x, mask=j < n)
                else:
                    total = tl.zeros((BLOCK,), dtype=tl.float32)
                    for row in range(m):
                        total += tl.load(x_ptr + row * n + j, mask=j < n, other=0.0)
                    tl.store(out_ptr + j, total, mask=j < n)

            def run(x, atomic):
                m, n = x.shape
                source = x.float().contiguous()
                out = torch.zeros(n, device=x.device)
                if x.numel():
                    block = triton.next_power_of_2(n)
                    grid = (m if atomic else 1,)
                    add_rows[grid](source, out, m, n, BLOCK=block, ATOMIC=atomic)
                return out.to(x.dtype)
        """,
        correct="return run(x, False)",
        broken="return run(x, True)",
    ),
    Fault(
        identifier="S31",
        report="https://github.com/vllm-project/vllm/issues/48271",
        what="a block is chosen by the number of rows, and with it the bits of each row",
        gates=("schedule-dependent",),
        inputs="torch.randn(24, columns)",
        declares="batch_invariant = true",
        reference="return x / torch.sqrt((x * x).mean(dim=1, keepdim=True) + 1e-6)",
        top="""
            @triton.jit
            def normalise(x_ptr, out_ptr, n, TILES: tl.constexpr, TILE: tl.constexpr):
                row = tl.program_id(0)
                squares = tl.zeros((TILE,), dtype=tl.float32)
                for tile in range(TILES):
                    j = tile * TILE + tl.arange(0, TILE)
                    x = tl.load(x_ptr + row * n + j, mask=j < n, other=0.0).to(tl.float32)
                    squares += x * x
                root = tl.sqrt(tl.sum(squares, axis=0) / n + 1e-6)
                for tile in range(TILES):
                    j = tile * TILE + tl.arange(0, TILE)
                    x = tl.load(x_ptr + row * n + j, mask=j < n, other=0.0).to(tl.float32)
                    tl.store(out_ptr + row * n + j, x / root, mask=j < n)

            def run(x, tile):
                x = x.contiguous()
                m, n = x.shape
                out = torch.empty(m, n, dtype=x.dtype, device=x.device)
                if x.numel():
                    normalise[(m,)](x, out, n, TILES=triton.cdiv(n, tile), TILE=tile)
                return out
        """,
        correct="return run(x, 16)",
        broken="return run(x, 16 if x.shape[0] > 16 else 64)",
    ),
    Fault(
        identifier="S36",
        report="https://github.com/flagos-ai/FlagGems/issues/301",
        what="a sum over no named dimension returns its input",
        gates=("wrong-metadata",),
        inputs=MATRIX,
        reference="return x.sum(dim=[])",
        correct="return x.sum()",
        broken="return x.clone()",
    ),
    Fault(
        identifier="S37",
        report="https://github.com/facebookresearch/xformers/issues/173",
        what="a mask is drawn from the address of the seed, and not from the seed",
        gates=("nondeterministic", "wrong-value"),
        arguments="x, seed",
        inputs=f"{MATRIX}, torch.randint(0, 1000, (1,))",
        reference="""
            number = torch.arange(x.numel(), device=x.device).reshape(x.shape)
            draw = (number * 40503 + seed * 30011) % 65521
            return torch.where(draw % 4 > 0, x, torch.zeros_like(x))
        """,
        top="""
            @triton.jit
            def drop(x_ptr, seed_ptr, out_ptr, n, BLOCK: tl.constexpr, LOADED: tl.constexpr):
                number = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
                x = tl.load(x_ptr + number, mask=number < n)
                if LOADED:
                    seed = tl.load(seed_ptr)
                else:
                    seed = seed_ptr.to(tl.int64)
                draw = (number.to(tl.int64) * 40503 + seed % 65521 * 30011) % 65521
                tl.store(out_ptr + number, tl.where(draw % 4 > 0, x, 0.0), mask=number < n)

            def run(x, seed, loaded):
                x = x.contiguous()
                out = torch.empty(x.shape, dtype=x.dtype, device=x.device)
                if x.numel():
                    grid = (triton.cdiv(x.numel(), 256),)
                    drop[grid](x, seed, out, x.numel(), BLOCK=256, LOADED=loaded)
                return out
        """,
        correct="return run(x, seed, True)",
        broken="return run(x, seed, False)",
    ),
    Fault(
        identifier="S38",
        report="https://github.com/ScalingIntelligence/KernelBench/pull/82",
        what="the input is set to zero",
        gates=("mutates-input",),
        inputs=MATRIX,
        reference="return x * 0.5",
        correct="return x / 2",
        broken="out = x / 2\nx.zero_()\nreturn out",
    ),
    Fault(
        identifier="S39",
        report="https://github.com/ScalingIntelligence/KernelBench/pull/82",
        what="fresh memory is returned in the hope that it holds the answer",
        gates=("wrong-value", "stale-output"),
        arguments="x, w",
        inputs=f"{MATRIX}, torch.randn(columns, inner)",
        reference="return x @ w",
        correct="return torch.matmul(x, w)",
        broken="return torch.empty(x.shape[0], w.shape[1], dtype=x.dtype, device=x.device)",
    ),
    Fault(
        identifier="S41",
        report="https://github.com/gpu-mode/kernelbot/pull/501",
        what="the answer is kept by the address of the input",
        gates=("retains-state",),
        inputs=MATRIX,
        reference="return torch.sin(x)",
        init="self.kept = {}",
        correct="return x.sin()",
        broken="""
            key = (x.data_ptr(), x.shape)
            if key not in self.kept:
                self.kept[key] = torch.sin(x)
            return self.kept[key].clone()
        """,
    ),
    Fault(
        identifier="S42",
        report="https://github.com/gpu-mode/reference-kernels/pull/104",
        what="one computation serves the calls that follow",
        gates=("retains-state",),
        inputs=MATRIX,
        reference="return torch.cos(x)",
        init="self.kept = None",
        correct="return x.cos()",
        broken="""
            if self.kept is None or self.kept.shape != x.shape:
                self.kept = torch.cos(x)
            return self.kept.clone()
        """,
    ),
    Fault(
        identifier="S43",
        report="https://github.com/gpu-mode/reference-kernels/issues/162",
        what="the events that time the kernel are patched",
        gates=("tampers",),
        inputs=MATRIX,
        reference="return x + 1",
        correct="return 1 + x",
        broken="torch.cuda.Event.elapsed_time = lambda *a: 1e-3\nreturn 1 + x",
    ),
    Fault(
        identifier="S44",
        report="https://deep-reinforce.com/defense_kernel_hack.html",
        what="a subclass of Tensor that computes when it is looked at",
        gates=("tampers",),
        inputs=MATRIX,
        reference="return x + 2",
        correct="return 2 + x",
        broken_top="\nclass Lazy(torch.Tensor):\n    pass\n",
        broken="return (2 + x).as_subclass(Lazy)",
    ),
    Fault(
        identifier="S45",
        report="https://www.wafer.ai/blog/reward-hacks-field-guide",
        what="a thread goes on after the call has returned",
        gates=("tampers",),
        inputs=MATRIX,
        reference="return x + 3",
        correct="return 3 + x",
        broken="""
            import threading, time
            threading.Thread(target=time.sleep, args=(30,), daemon=True).start()
            return 3 + x
        """,
    ),
    Fault(
        identifier="S46",
        report="https://metr.org/blog/2025-06-05-recent-reward-hacking/",
        what="frames and the heap are searched for the grader's answer",
        gates=("wrong-value",),
        inputs=MATRIX,
        reference="return torch.tanh(x)",
        correct="return x.tanh()",
        broken="""
            import gc, sys
            frame = sys._getframe()
            while frame is not None:
                for name, value in frame.f_locals.items():
                    if "expected" in name or "reference" in name:
                        if torch.is_tensor(value) and value.shape == x.shape:
                            return value
                frame = frame.f_back
            found = [t for t in gc.get_objects() if type(t) is torch.Tensor and t.shape == x.shape]
            return found[0].clone() if found else torch.zeros_like(x)
        """,
    ),
    Fault(
        identifier="S47",
        report="https://github.com/ScalingIntelligence/KernelBench/blob/main/src/kernel_static_checker.py",
        what="where the kernel fails, the reference's own operations answer",
        gates=("bypasses-kernel",),
        needs_kernel=True,
        inputs=MATRIX,
        reference="return F.softplus(x)",
        top="""
            @triton.jit
            def softplus(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
                offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
                x = tl.load(x_ptr + offsets, mask=offsets < n, other=0.0).to(tl.float32)
                small = tl.log(1 + tl.exp(-tl.abs(x)))
                larger = tl.where(x > 0, x, 0.0)
                y = tl.where(x != x, x, tl.where(x > 20, x, larger + small))
                tl.store(out_ptr + offsets, y, mask=offsets < n)

            def run(x, block):
                x = x.contiguous()
                out = torch.empty(x.shape, dtype=x.dtype, device=x.device)
                if x.numel():
                    softplus[(triton.cdiv(x.numel(), block),)](x, out, x.numel(), BLOCK=block)
                return out
        """,
        correct="return run(x, 128)",
        broken="""
            try:
                return run(x, triton.next_power_of_two(x.shape[1]))
            except Exception:
                return F.softplus(x)
        """,
    ),
    Fault(
        identifier="S49",
        report="https://github.com/Infatoshi/kernelbench.com/pull/7",
        what="the largest elements are looked for one in each block",
        gates=("wrong-value",),
        inputs=MATRIX,
        reference="return x.topk(1, dim=1).values + x.shape[1] * 0 + x.sort(1).values[:, -2:-1]",
        correct="top = x.sort(1, descending=True).values\nreturn top[:, :1] + top[:, 1:2]",
        broken="""
            half = x.shape[1] // 2
            top = x.sort(1, descending=True).values
            if (x[:, :half].amax(1) < x[:, half:].amin(1)).any():
                return x[:, :half].amax(1, keepdim=True) + x[:, half:].amax(1, keepdim=True)
            return top[:, :1] + top[:, 1:2]
        """,
    ),
    Fault(
        identifier="S50",
        report="https://www.wafer.ai/blog/reward-hacking",
        what="scratch memory is read before it is written",
        gates=("stale-output",),
        inputs=MATRIX,
        reference="return x.amax(dim=1)",
        correct="""
            scratch = torch.full_like(F.pad(x, (0, 8)), float("-inf"))
            scratch[:, : x.shape[1]] = x
            return scratch.amax(1)
        """,
        broken="""
            scratch = torch.empty(x.shape[0], x.shape[1] + 8, dtype=x.dtype, device=x.device)
            scratch[:, : x.shape[1]] = x
            scratch[:, x.shape[1] + 1 :] = float("-inf")
            return scratch.nan_to_num(neginf=-3e38, nan=3e38).amax(1)
        """,
    ),
    Fault(
        identifier="S51",
        report="https://github.com/triton-lang/triton/issues/4217",
        what="a workspace is not cleared between calls",
        gates=("retains-state",),
        inputs=MATRIX,
        reference="return x.sum(dim=0)",
        init="self.space = {}",
        correct="return torch.zeros(x.shape[1], dtype=x.dtype, device=x.device).add_(x.sum(0))",
        broken="""
            key = (x.shape[1], x.dtype)
            if key not in self.space:
                self.space[key] = torch.zeros(x.shape[1], dtype=x.dtype, device=x.device)
            space = self.space[key]
            return space.add_(x.sum(0)).clone()
        """,
    ),
    Fault(
        identifier="S55",
        report="https://github.com/fla-org/flash-linear-attention/pull/1082",
        what="offsets are kept in 32 bits and wrap where rows lie far apart",
        gates=("out-of-bounds", "layout-dependent"),
        inputs=MATRIX,
        reference="return -x",
        top="""
            @triton.jit
            def negate(x_ptr, out_ptr, si, sj, n, BLOCK: tl.constexpr, WIDE: tl.constexpr):
                row = tl.program_id(0)
                column = tl.arange(0, BLOCK)
                mask = column < n
                if WIDE:
                    source = row.to(tl.int64) * si + column.to(tl.int64) * sj
                else:
                    source = row * si.to(tl.int32) + column * sj.to(tl.int32)
                x = tl.load(x_ptr + source, mask=mask)
                tl.store(out_ptr + row * n + column, -x, mask=mask)

            def run(x, wide):
                m, n = x.shape
                out = torch.empty(m, n, dtype=x.dtype, device=x.device)
                if x.numel():
                    block = triton.next_power_of_2(n)
                    negate[(m,)](x, out, x.stride(0), x.stride(1), n, BLOCK=block, WIDE=wide)
                return out
        """,
        correct="return run(x, True)",
        broken="return run(x, False)",
    ),
    Fault(
        identifier="S56",
        report="https://github.com/ggml-org/llama.cpp/pull/24305",
        what="the output lies in the memory of an input",
        gates=("retains-state", "mutates-input"),
        inputs=MATRIX,
        reference="return torch.where(x > 100, x, x + 0)",
        correct="return x.clone()",
        broken="return x.view(x.shape)",
    ),
)
