"""Narrow sums and factors, each hidden in an otherwise correct operation: which are convicted and named.

    python benchmarks/narrow.py [--jobs N] [WORDS ...]

One line a row of the table: subject, dtype, what is narrow; whether it is convicted, and by which gate;
the grade, and whether that is what is narrow; probes and seconds. Rows without anything narrow must be
clean. With words, only the rows whose text holds all of them. Rows are printed as they end. Ends with 1
if a row is not as it should be.
"""

from __future__ import annotations

import argparse
import multiprocessing
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from typing import NamedTuple

from adjudge.frontends import kernelbench
from adjudge.judge.verify import Options, verify
from adjudge.oracle import REGIMES
from adjudge.worker.client import Zygote

GATES = ("wrong-value", "narrow-accumulator")

HELPERS = """
import torch
import torch.nn as nn
import torch.nn.functional as F

ACC, FACTOR, BLOCK = torch.{acc}, "{factor}", {block}


def cut(x):
    # Half precision is read as it is.
    if FACTOR == "tf32" and x.dtype == torch.float32:
        bits = (x.contiguous().view(torch.int32) + 0x1000) & ~0x1FFF
        return bits.view(torch.float32)
    return x if not FACTOR or FACTOR == "tf32" else x.to(getattr(torch, FACTOR))


def kept(x):
    return x.to(ACC).float()


def product(a, b):
    a, b = cut(a).float(), cut(b).float()
    if {wide_products}:
        return a @ b
    out = torch.zeros(*a.shape[:-1], b.shape[-1])
    for k in range(0, a.shape[-1], BLOCK):
        out = kept(out + a[..., k : k + BLOCK] @ b[..., k : k + BLOCK, :])
    return out


def total(x):
    x = cut(x).float()
    if {wide_sums}:
        return x.sum(dim=-1, keepdim=True)
    out = torch.zeros(*x.shape[:-1], 1)
    for k in range(0, x.shape[-1], BLOCK):
        out = kept(out + x[..., k : k + BLOCK].sum(dim=-1, keepdim=True))
    return out


def softmax(s):
    e = torch.exp(s - s.amax(dim=-1, keepdim=True))
    return e / total(e)


def flash(q, k, v, mask=None):
    # Blocks of keys with a running maximum, as FlashAttention takes them; the running sum is ACC's.
    step = max(BLOCK, 16)
    scale = q.shape[-1] ** -0.5
    top = torch.full((*q.shape[:-1], 1), -torch.inf)
    out, weights = torch.zeros(*q.shape[:-1], v.shape[-1]), torch.zeros(*q.shape[:-1], 1)
    for n in range(0, k.shape[-2], step):
        s = (q.float() @ k[..., n : n + step, :].float().mT) * scale
        if mask is not None:
            s = s + mask[..., n : n + step]
        new = torch.maximum(top, s.amax(dim=-1, keepdim=True))
        p, old = torch.exp(s - new), torch.exp(top - new)
        out = out * old + p.to(q.dtype).float() @ v[..., n : n + step, :].float()
        weights, top = kept(weights * old + p.sum(dim=-1, keepdim=True)), new
    return (out / weights).to(q.dtype)
"""

#: The two sums as kernels, for `HELPERS`.
KERNELS = """
import triton
import triton.language as tl


@triton.jit
def product_kernel(a, b, out, M, N, K, B: tl.constexpr, A: tl.constexpr, P: tl.constexpr):
    m = tl.program_id(0) * 16 + tl.arange(0, 16)[:, None]
    n = tl.program_id(1) * 16 + tl.arange(0, 16)[None, :]
    acc = tl.zeros((16, 16), A)
    for k in range(0, K, B):
        at = k + tl.arange(0, B)
        left = tl.load(a + m * K + at[None, :], mask=(m < M) & (at[None, :] < K), other=0.0)
        right = tl.load(b + at[:, None] * N + n, mask=(at[:, None] < K) & (n < N), other=0.0)
        acc = (acc.to(tl.float32) + tl.dot(left, right, input_precision=P)).to(A)
    tl.store(out + m * N + n, acc.to(tl.float32), mask=(m < M) & (n < N))


@triton.jit
def total_kernel(x, out, K, B: tl.constexpr, A: tl.constexpr):
    row = tl.program_id(0)
    acc = tl.zeros((1,), A)
    for k in range(0, K, B):
        at = k + tl.arange(0, B)
        part = tl.load(x + row * K + at, mask=at < K, other=0.0)
        acc = (acc.to(tl.float32) + tl.sum(part, 0)).to(A)
    tl.store(out + row + tl.arange(0, 1), acc.to(tl.float32))


KEPT = tl.{acc}


def product(a, b):
    shape = (*a.shape[:-1], b.shape[-1])
    narrow = FACTOR not in ("", "tf32")
    a, b = ((cut(x) if narrow else x).float().contiguous() for x in (a, b))
    a, b = a.view(-1, *a.shape[-2:]), b.view(-1, *b.shape[-2:])
    out = torch.empty(a.shape[0], a.shape[1], b.shape[2], device=a.device)
    (M, K), N = a.shape[1:], b.shape[2]
    kept = tl.float32 if {wide_products} else KEPT
    for left, right, answer in zip(a, b, out):
        grid = (triton.cdiv(M, 16), triton.cdiv(N, 16))
        precision = "tf32" if FACTOR == "tf32" else "ieee"
        product_kernel[grid](left, right, answer, M, N, K, 64, kept, precision)
    return out.view(shape)


def total(x):
    x = cut(x).float().contiguous()
    out = torch.empty(*x.shape[:-1], 1, device=x.device)
    kept = tl.float32 if {wide_sums} else KEPT
    total_kernel[(out.numel(),)](x, out, x.shape[-1], 64, kept)
    return out
"""

#: Unless told otherwise, Inductor leaves out roundings between what it fuses, and so what is narrow.
COMPILED = """
import torch._inductor.config
torch._inductor.config.emulate_precision_casts = True
torch._dynamo.config.recompile_limit = 256
torch._dynamo.config.accumulated_recompile_limit = 1024


def compiled(out):
    if not torch._dynamo.utils.counters["frames"]["ok"]:
        raise RuntimeError("nothing was compiled")
    return out
"""

WIDE = {"acc": "float32", "factor": "", "block": 1, "wide_products": True, "wide_sums": True}


class Subject(NamedTuple):
    arguments: str
    #: Of the reference, and of the candidate.
    plain: str
    body: str
    inputs: str
    #: Lines of the constructor, and its arguments.
    init: str = ""
    init_args: str = ""
    #: What it adds up: "products", "sums" or both.
    adds: tuple[str, ...] = ("products",)
    #: Whether the candidate goes through `torch.compile`, or its sums are Triton's, interpreted.
    compiled: bool = False
    kernels: bool = False


_QKV = "torch.randn(1, 2, 64, 16), torch.randn(1, 2, 64, 16), torch.randn(1, 2, 64, 16)"
_ATTEND = "product(softmax(product(q, k.mT) * q.shape[-1] ** -0.5), v)"
_CAUSAL = "torch.full((q.shape[-2], k.shape[-2]), -torch.inf).triu(1)"
SUBJECTS = {
    "matmul": Subject("a, b", "a @ b", "product(a, b)", "torch.randn(32, 48), torch.randn(48, 32)"),
    "matmul + bias": Subject(
        "a, b, c",
        "torch.addmm(c, a, b)",
        "product(a, b) + c.float()",
        "torch.randn(32, 48), torch.randn(48, 32), torch.randn(32)",
    ),
    "linear": Subject(
        "x",
        "self.fc(x)",
        "product(x, self.fc.weight.mT) + self.fc.bias.float()",
        "torch.randn(32, 48)",
        "self.fc = nn.Linear(dim, 32)DTYPE",
        "48",
    ),
    "linear of ones": Subject(
        "x",
        "x @ torch.ones(x.shape[-1], 8, dtype=x.dtype)",
        "product(x, torch.ones(x.shape[-1], 8, dtype=x.dtype))",
        "torch.randn(32, 48)",
    ),
    "rms norm": Subject(
        "x",
        "(x.float() * torch.rsqrt(x.float().square().mean(-1, keepdim=True) + 1e-6)).to(x.dtype)",
        "x.float() * torch.rsqrt(total(x.float() ** 2) / x.shape[-1] + 1e-6)",
        "torch.randn(16, 96)",
        adds=("sums",),
    ),
    "rms norm, in its dtype": Subject(
        "x",
        "x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6)",
        "x.float() * torch.rsqrt(total(x.float() ** 2) / x.shape[-1] + 1e-6)",
        "torch.randn(16, 96)",
        adds=("sums",),
    ),
    "rms norm, weight given": Subject(
        "x, w",
        "F.rms_norm(x, (x.shape[-1],), w, 1e-6)",
        "x.float() * torch.rsqrt(total(x.float() ** 2) / x.shape[-1] + 1e-6) * w.float()",
        "torch.randn(16, 96), torch.randn(96)",
        adds=("sums",),
    ),
    "rms norm, a module": Subject(
        "x",
        "F.rms_norm(x, (x.shape[-1],), self.weight, 1e-6)",
        "x.float() * torch.rsqrt(total(x.float() ** 2) / x.shape[-1] + 1e-6) * self.weight.float()",
        "torch.randn(16, 96)",
        "self.weight = nn.Parameter(torch.ones(dim)DTYPE)",
        "96",
        adds=("sums",),
    ),
    "softmax": Subject(
        "x", "torch.softmax(x, dim=-1)", "softmax(x.float())", "torch.randn(8, 128)", adds=("sums",)
    ),
    "attention": Subject(
        "q, k, v",
        "F.scaled_dot_product_attention(q, k, v)",
        _ATTEND,
        _QKV,
        adds=("products", "sums"),
    ),
    "attention, written out": Subject(
        "q, k, v",
        "torch.softmax(q @ k.mT * q.shape[-1] ** -0.5, dim=-1) @ v",
        _ATTEND,
        _QKV,
        adds=("products", "sums"),
    ),
    "attention, causal": Subject(
        "q, k, v",
        "F.scaled_dot_product_attention(q, k, v, is_causal=True)",
        f"product(softmax(product(q, k.mT) * q.shape[-1] ** -0.5 + {_CAUSAL}), v)",
        _QKV,
        adds=("products", "sums"),
    ),
    "attention, a mask given": Subject(
        "q, k, v, mask",
        "F.scaled_dot_product_attention(q, k, v, attn_mask=mask)",
        "product(softmax(product(q, k.mT) * q.shape[-1] ** -0.5 + mask.float()), v)",
        f"{_QKV}, torch.randn(64, 64)",
        adds=("products", "sums"),
    ),
    "attention, flash": Subject(
        "q, k, v",
        "F.scaled_dot_product_attention(q, k, v)",
        "flash(q, k, v)",
        _QKV,
        adds=("sums",),
    ),
}
for _name in ("matmul", "rms norm", "attention"):
    SUBJECTS[f"{_name}, compiled"] = SUBJECTS[_name]._replace(compiled=True)
    SUBJECTS[f"{_name}, Triton"] = SUBJECTS[_name]._replace(kernels=True)
#: Of a block: once a term, and once in so many.
BLOCKS = (1, 64)
DTYPES = ("float32", "float16", "bfloat16")
NAMED = {
    "float16 sums": ("fp16xfp16",),
    "bfloat16 sums": ("bf16xbf16",),
    "tf32 factors": ("tf32",),
    # The same eleven bits.
    "float16 factors": ("fp16xfp32",),
    "bfloat16 factors": ("bf16xfp32",),
}


class Row(NamedTuple):
    subject: str
    dtype: str
    what: str
    block: int
    sums: str
    settings: dict[str, object]
    flash: bool = False

    @property
    def words(self) -> str:
        what = self.what or "nothing"
        where = f" of {self.sums}" if self.sums else ""
        each = (
            "" if not self.sums else f", {'a term' if self.block == 1 else f'{self.block} terms'}"
        )
        return f"{self.subject} | {self.dtype} | {what}{where}{each}"


def rows() -> Iterator[Row]:
    for name, subject in SUBJECTS.items():
        for dtype in DTYPES:
            yield Row(name, dtype, "", 64, "", {**WIDE, "block": 64})
            for acc in ("float16", "bfloat16"):
                for kind in subject.adds:
                    for block in (64,) if "flash" in name or subject.kernels else BLOCKS:
                        settings = {**WIDE, "acc": acc, "block": block, f"wide_{kind}": False}
                        yield Row(name, dtype, f"{acc} sums", block, kind, settings)
            if dtype == "float32" and "flash" not in name:
                for factor in ("tf32", "float16", "bfloat16"):
                    yield Row(name, dtype, f"{factor} factors", 64, "", {**WIDE, "factor": factor})


def source(name: str, subject: Subject, body: str, dtype: str, settings: dict[str, object]) -> str:
    helpers = HELPERS + (KERNELS if subject.kernels and name == "ModelNew" else "")
    for key, value in settings.items():
        helpers = helpers.replace("{" + key + "}", str(value))
    cast = "" if dtype == "float32" else f".to(torch.{dtype})"
    inputs = subject.inputs.replace(")", "").split(", torch")
    drawn = ", ".join((x if x.startswith("torch") else f"torch{x}") + ")" + cast for x in inputs)
    dim = "dim" if subject.init_args else ""
    init, plain = subject.init.replace("DTYPE", cast) or "pass", body
    if subject.compiled and name == "ModelNew":
        body = f"compiled(self.plain({subject.arguments}))"
        init = (
            f"self.plain = torch.compile(self.body)\n\n"
            f"    def body(self, {subject.arguments}):\n        return {plain}"
        )
        helpers += COMPILED
    return (
        f"{helpers}\n\nclass {name}(nn.Module):\n"
        f"    def __init__(self{', ' + dim if dim else ''}):\n        super().__init__()\n"
        f"        {init}\n\n"
        f"    def forward(self, {subject.arguments}):\n        return {body}\n\n\n"
        f"def get_inputs():\n    return [{drawn}]\n\n\n"
        f"def get_init_inputs():\n    return [{subject.init_args}]\n"
    )


def judged(zygote: Zygote, row: Row) -> tuple[bool, str]:
    """Whether the row is as it should be, and its line."""
    subject = SUBJECTS[row.subject]
    cast = f"({subject.body}).to(torch.{row.dtype})"
    program, candidate = kernelbench.from_source(
        source("Model", subject, subject.plain, row.dtype, WIDE),
        source("ModelNew", subject, cast, row.dtype, row.settings),
        "narrow",
    )
    start = time.perf_counter()
    options = Options(
        zygote=zygote,
        examine=False,
        gates=GATES,
        # Where a device is claimed, what is compiled is run eagerly.
        face="cpu" if subject.compiled else "cuda",
        allow_compiler=subject.compiled,
        timeout=120,
    )
    verdict = verify(program, candidate, options)
    seconds = time.perf_counter() - start
    finding = next(f for f in verdict.findings if f.gate == "narrow-accumulator")
    gates = [f.gate for f in verdict.violations]
    if not row.what:
        good = not gates and REGIMES.index(verdict.grade) <= REGIMES.index(verdict.required)
        named = verdict.grade
    else:
        right = verdict.grade in NAMED[row.what]
        good = gates == ["narrow-accumulator"] and finding.exact and right
        named = verdict.grade if right else f"{verdict.grade} (wrong)"
    convicted = ", ".join(gates) or "-"
    exact = " exact" if gates and finding.exact else ""
    probe = finding.violation.probe.distribution if finding.violation else ""
    line = f"{'   ' if good else 'NO '}{row.words} | {convicted}{exact} | {named} | {probe}"
    return good, f"{line} | {finding.probes} probes, {seconds:.1f} s"


def alone(row: Row) -> tuple[bool, str]:
    """`judged` with a zygote of its own: one process judges one row at a time."""
    compiled = SUBJECTS[row.subject].compiled
    face = "cpu" if compiled else "cuda"
    with Zygote.start(face=face, allow_compiler=compiled) as zygote:
        return judged(zygote, row)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jobs", type=int, default=1, help="rows judged at a time")
    parser.add_argument("words", nargs="*")
    options = parser.parse_args()
    wanted = [row for row in rows() if all(word in row.words for word in options.words)]
    failures = 0
    with ProcessPoolExecutor(
        options.jobs, mp_context=multiprocessing.get_context("spawn")
    ) as processes:
        for judging in as_completed([processes.submit(alone, row) for row in wanted]):
            good, line = judging.result()
            failures += not good
            print(line, flush=True)
    print(f"{len(wanted)} rows, {failures} not as they should be")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
