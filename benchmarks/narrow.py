"""Narrow sums and factors, each hidden in an otherwise correct operation: which are convicted and named.

    python benchmarks/narrow.py [WORDS ...]

One line a row of the table: subject, dtype, what is narrow; whether it is convicted, and by which gate;
the grade, and whether that is what is narrow; probes and seconds. Rows without anything narrow must be
clean. With words, only the rows whose text holds all of them. Ends with 1 if a row is not as it should
be.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
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
                    for block in (64,) if "flash" in name else BLOCKS:
                        settings = {**WIDE, "acc": acc, "block": block, f"wide_{kind}": False}
                        yield Row(name, dtype, f"{acc} sums", block, kind, settings)
            if dtype == "float32" and "flash" not in name:
                for factor in ("tf32", "float16", "bfloat16"):
                    yield Row(name, dtype, f"{factor} factors", 64, "", {**WIDE, "factor": factor})


def source(name: str, subject: Subject, body: str, dtype: str, settings: dict[str, object]) -> str:
    helpers = HELPERS
    for key, value in settings.items():
        helpers = helpers.replace("{" + key + "}", str(value))
    cast = "" if dtype == "float32" else f".to(torch.{dtype})"
    inputs = subject.inputs.replace(")", "").split(", torch")
    drawn = ", ".join((x if x.startswith("torch") else f"torch{x}") + ")" + cast for x in inputs)
    dim = "dim" if subject.init_args else ""
    init = subject.init.replace("DTYPE", cast) or "pass"
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
    verdict = verify(program, candidate, Options(zygote=zygote, examine=False, gates=GATES))
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


def main() -> int:
    wanted = [row for row in rows() if all(word in row.words for word in sys.argv[1:])]
    failures = 0
    with Zygote.start() as zygote:
        for row in wanted:
            good, line = judged(zygote, row)
            failures += not good
            print(line, flush=True)
    print(f"{len(wanted)} rows, {failures} not as they should be")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
