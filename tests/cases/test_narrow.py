"""Narrow sums and factors, each hidden in an otherwise correct operation, are named and convicted."""

from __future__ import annotations

import pytest

from adjudge.contract import Outcome
from adjudge.frontends import kernelbench
from adjudge.judge.replay import replay
from adjudge.judge.verify import Options, verify
from adjudge.oracle import REGIMES
from adjudge.worker.client import Zygote

HELPERS = """
import torch
import torch.nn as nn


def cut(x):
    bits = (x.contiguous().view(torch.int32) + 0x1000) & ~0x1FFF
    return bits.view(torch.float32)


def product(a, b):
    return a @ b


def total(x):
    return x.sum(dim=-1, keepdim=True)
"""
#: What is narrow, as replacements of the two sums.
NARROW = {
    "float16 sums": """
def product(a, b):
    out = torch.zeros(*a.shape[:-1], b.shape[-1], dtype=torch.float16)
    for k in range(a.shape[-1]):
        out = (out.float() + a[..., k : k + 1] * b[..., k : k + 1, :]).half()
    return out.float()


def total(x):
    out = torch.zeros(*x.shape[:-1], 1, dtype=torch.float16)
    for k in range(x.shape[-1]):
        out = (out.float() + x[..., k : k + 1]).half()
    return out.float()
""",
    "tf32 factors": """
def product(a, b):
    return cut(a) @ cut(b)


def total(x):
    return cut(x).sum(dim=-1, keepdim=True)
""",
}
NARROW["bfloat16 sums"] = (
    NARROW["float16 sums"].replace("float16", "bfloat16").replace(".half()", ".bfloat16()")
)
OPERATIONS = {
    "matmul": ("a, b", "product(a, b)", "torch.randn(32, 48), torch.randn(48, 32)"),
    "rms norm": (
        "x",
        "x * torch.rsqrt(total(x * x) / x.shape[-1] + 1e-6)",
        "torch.randn(16, 96)",
    ),
    "attention": (
        "q, k, v",
        "product(torch.softmax(product(q, k.mT) / q.shape[-1] ** 0.5, dim=-1), v)",
        "torch.randn(2, 32, 16), torch.randn(2, 32, 16), torch.randn(2, 32, 16)",
    ),
}


def source(name: str, operation: str, narrow: str = "") -> str:
    arguments, body, inputs = OPERATIONS[operation]
    return (
        f"{HELPERS}{narrow}\n\nclass {name}(nn.Module):\n"
        f"    def forward(self, {arguments}):\n        return {body}\n\n\n"
        f"def get_inputs():\n    return [{inputs}]\n\n\ndef get_init_inputs():\n    return []\n"
    )


@pytest.mark.parametrize("operation", OPERATIONS)
@pytest.mark.parametrize("what", NARROW)
def test_it_is_named_and_convicted(zygote: Zygote, operation: str, what: str) -> None:
    program, candidate = kernelbench.from_source(
        source("Model", operation), source("ModelNew", operation, NARROW[what]), "narrow"
    )
    options = Options(zygote=zygote, examine=False, gates=("wrong-value", "narrow-accumulator"))
    verdict = verify(program, candidate, options)
    finding = verdict.findings[1]
    assert finding.outcome is Outcome.VIOLATION
    assert finding.exact
    named = {"tf32 factors": "tf32", "float16 sums": "fp16", "bfloat16 sums": "bf16"}[what]
    assert named in verdict.grade
    assert REGIMES.index(verdict.grade) > REGIMES.index(verdict.required)


@pytest.mark.parametrize("operation", OPERATIONS)
def test_the_wide_twin_is_clean(zygote: Zygote, operation: str) -> None:
    program, candidate = kernelbench.from_source(
        source("Model", operation), source("ModelNew", operation), "wide"
    )
    options = Options(zygote=zygote, examine=False, gates=("wrong-value", "narrow-accumulator"))
    verdict = verify(program, candidate, options)
    assert not verdict.violations


HALF = {
    "matmul": ("a, b", "product(a, b)", "torch.randn(16, 96).half(), torch.randn(96, 16).half()"),
    "rms norm": (
        "x",
        "(x.float() * torch.rsqrt(total(x.float() ** 2) / x.shape[-1] + 1e-6)).half()",
        "torch.randn(16, 96).half()",
    ),
}
WIDE = """
def product(a, b):
    return (a.float() @ b.float()).half()
"""


@pytest.mark.parametrize("operation", HALF)
@pytest.mark.parametrize("narrow", [WIDE, NARROW["float16 sums"].replace("out.float()\n", "out\n")])
def test_a_float16_task_keeps_its_sums_in_float32(
    zygote: Zygote, monkeypatch: pytest.MonkeyPatch, operation: str, narrow: str
) -> None:
    monkeypatch.setitem(OPERATIONS, operation, HALF[operation])
    program, candidate = kernelbench.from_source(
        source("Model", operation, WIDE), source("ModelNew", operation, narrow), "half"
    )
    options = Options(zygote=zygote, examine=False, gates=("wrong-value", "narrow-accumulator"))
    verdict = verify(program, candidate, options)
    finding = verdict.findings[1]
    expected = Outcome.PASS if narrow is WIDE else Outcome.VIOLATION
    assert finding.outcome is expected, finding


#: A product, and attention, whose sums are kept in `ACC` from block to block.
BLOCKS = """
def product(a, b):
    total = torch.zeros(*a.shape[:-1], b.shape[-1], dtype=ACC)
    for k in range(0, a.shape[-1], BLOCK):
        part = a[..., k : k + BLOCK].float() @ b[..., k : k + BLOCK, :].float()
        total = (total.float() + part).to(ACC)
    return total.to(a.dtype)
"""
BLOCKED = {
    "matmul": ("a, b", "product(a, b)", "torch.randn(8, 160).half(), torch.randn(160, 8).half()"),
    "attention": (
        "q, k, v",
        "product(torch.softmax(q @ k.mT / q.shape[-1] ** 0.5, dim=-1), v)",
        "torch.randn(1, 64, 16).half(), torch.randn(1, 64, 16).half(), torch.randn(1, 64, 16).half()",
    ),
}


@pytest.mark.parametrize("operation", BLOCKED)
@pytest.mark.parametrize(
    ("accumulator", "block", "grade"),
    [("float16", 64, "fp16xfp16"), ("bfloat16", 256, "bf16xbf16"), ("float32", 32, "")],
)
def test_a_sum_rounded_once_a_block_is_named(
    zygote: Zygote,
    monkeypatch: pytest.MonkeyPatch,
    operation: str,
    accumulator: str,
    block: int,
    grade: str,
) -> None:
    monkeypatch.setitem(OPERATIONS, operation, BLOCKED[operation])
    narrow = BLOCKS.replace("ACC", f"torch.{accumulator}").replace("BLOCK", str(block))
    program, candidate = kernelbench.from_source(
        source("Model", operation, WIDE), source("ModelNew", operation, narrow), "blocks"
    )
    options = Options(zygote=zygote, examine=False, gates=("wrong-value", "narrow-accumulator"))
    verdict = verify(program, candidate, options)
    convicted = [finding.gate for finding in verdict.violations]
    assert convicted == (["narrow-accumulator"] if grade else []), verdict.findings
    if grade:
        assert verdict.grade == grade
        assert verdict.violations[0].exact


IN_BLOCKS = """
def total(x):
    out = torch.zeros(*x.shape[:-1], 1)
    for k in range(0, x.shape[-1], 64):
        out = (out + x[..., k : k + 64].sum(dim=-1, keepdim=True)).to(NARROW).float()
    return out


def product(a, b):
    out = torch.zeros(*a.shape[:-1], b.shape[-1])
    for k in range(0, a.shape[-1], 64):
        out = (out + a[..., k : k + 64].float() @ b[..., k : k + 64, :].float()).to(NARROW).float()
    return out.to(a.dtype)
"""


def test_a_sum_of_squares_rounded_once_a_block_is_named(
    zygote: Zygote, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(OPERATIONS, "rms norm", HALF["rms norm"])
    blocked = IN_BLOCKS.replace("NARROW", "torch.bfloat16")
    program, candidate = kernelbench.from_source(
        source("Model", "rms norm", WIDE), source("ModelNew", "rms norm", blocked), "blocked"
    )
    options = Options(zygote=zygote, examine=False, gates=("wrong-value", "narrow-accumulator"))
    verdict = verify(program, candidate, options)
    assert [f.gate for f in verdict.violations] == ["narrow-accumulator"]
    assert verdict.grade == "bf16xbf16"


def test_an_overflow_is_part_of_the_conviction(zygote: Zygote) -> None:
    """Sums of values of a thousand are beyond float16: infinite there, and no second fault."""
    blocked = IN_BLOCKS.replace("NARROW", "torch.float16")
    program, candidate = kernelbench.from_source(
        source("Model", "matmul"), source("ModelNew", "matmul", blocked), "overflow"
    )
    options = Options(zygote=zygote, examine=False, gates=("wrong-value", "narrow-accumulator"))
    verdict = verify(program, candidate, options)
    assert [f.gate for f in verdict.violations] == ["narrow-accumulator"]


def test_a_narrow_running_sum_is_convicted(zygote: Zygote) -> None:
    """No contraction and no reduction of the reference tells that it adds up."""
    plain = """
import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x):
        return x.cumsum(dim=-1)


def get_inputs():
    return [torch.randn(8, 96)]


def get_init_inputs():
    return []
"""
    narrow = plain.replace("class Model(", "class ModelNew(").replace(
        "x.cumsum(dim=-1)", "torch.stack(list(running(x)), dim=-1)"
    )
    narrow += """

def running(x):
    total = torch.zeros(x.shape[:-1], dtype=torch.float16)
    for column in x.unbind(-1):
        total = (total.float() + column).half()
        yield total.float()
"""
    program, candidate = kernelbench.from_source(plain, narrow, "running sum")
    options = Options(zygote=zygote, examine=False, gates=("wrong-value", "narrow-accumulator"))
    verdict = verify(program, candidate, options)
    convicted = {finding.gate: finding for finding in verdict.violations}
    assert convicted["narrow-accumulator"].exact, verdict.findings


def test_a_grade_is_shown_at_the_least_sizes_and_replayed_there(zygote: Zygote) -> None:
    """Nothing is summed, so that no other run than an ordinary one shows it."""
    plain = """
import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x):
        return torch.sigmoid(x)


def get_inputs():
    return [torch.randn(16, 96)]


def get_init_inputs():
    return []
"""
    coarse = plain.replace("class Model(", "class ModelNew(").replace(
        "torch.sigmoid(x)", "torch.sigmoid(x.half()).float()"
    )
    program, candidate = kernelbench.from_source(plain, coarse, "coarse")
    options = Options(zygote=zygote, examine=False, gates=("wrong-value", "narrow-accumulator"))
    (finding,) = verify(program, candidate, options).violations
    violation = finding.violation
    assert violation is not None
    assert (finding.gate, violation.signature) == ("wrong-value", "precision")
    assert all(size == 1 for _, size in violation.probe.sizes)
    again = replay(violation.replay, program, candidate, options)
    assert again.same_inputs
    assert again.same_outputs
    assert again.finding is not None
    assert again.finding.reason == finding.reason
    assert again.finding.violation is not None
    assert again.finding.violation.probe == violation.probe
