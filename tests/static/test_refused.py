"""Kernels that no compiler accepts are found in the compiler's own words; where none is, nothing is."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from adjudge.cli import run
from adjudge.contract import Finding, Outcome, Scope, Standing, Verdict, Violation
from adjudge.errors import UsageError
from adjudge.frontends import kernelbench
from adjudge.judge import refused
from adjudge.judge.declared import Governed
from adjudge.judge.replay import replay
from adjudge.judge.verify import Options, verify
from adjudge.probe import Probe
from adjudge.static import nvcc
from adjudge.static.chips import chip
from adjudge.static.kernels import standalone
from adjudge.static.source import Source
from adjudge.task import Declared, Resources
from adjudge.worker import complaints
from adjudge.worker.client import Zygote

pytest.importorskip("triton")

needs_nvcc = pytest.mark.skipif(nvcc.find() is None, reason="there is no nvcc here")

REFERENCE = """\
import torch


class Model(torch.nn.Module):
    def forward(self, x):
        return x * 2


def get_inputs():
    return [torch.rand(8, 32)]


def get_init_inputs():
    return []
"""
TRITON = """\
import torch
import triton
import triton.language as tl


@triton.jit
def double(x, out, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    # Twice.
    value = BODY
    tl.store(out + offsets, value, offsets < n)


class ModelNew(torch.nn.Module):
    def forward(self, x):
        out = torch.empty_like(x)
        double[(triton.cdiv(x.numel(), 64),)](x, out, x.numel(), BLOCK=64)
        return out
"""
LISTED = "[2 * tl.load(x + offsets, offsets < n) for _ in range(1)][0]"
CUDA = '''\
import torch
from torch.utils.cpp_extension import load_inline

SOURCE = r"""
#include <torch/extension.h>
__global__ void doubled(const float* x, float* o, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    // Twice.
    BODY
}
torch::Tensor doubled_of(torch::Tensor x) { return x; }
"""
module = load_inline("m", "torch::Tensor doubled_of(torch::Tensor x);", SOURCE)


class ModelNew(torch.nn.Module):
    def forward(self, x):
        return module.doubled_of(x)
'''


def judged(zygote: Zygote, text: str, **changes: object) -> Verdict:
    program, candidate = kernelbench.from_source(REFERENCE, text, "k")
    plain = Options(
        zygote=zygote, examine=False, gates=("wrong-value",), compiled=True, large=0, fast=True
    )
    return verify(program, candidate, replace(plain, **changes))  # type: ignore[arg-type]


def test_what_the_interpreter_runs_and_the_compiler_refuses(zygote: Zygote) -> None:
    verdict = judged(zygote, TRITON.replace("BODY", LISTED))
    (finding,) = verdict.findings
    assert verdict.standing is Standing.VIOLATING
    assert finding.violation is not None
    assert (finding.violation.signature, finding.scope) == ("not compiled", Scope.DECLARED)
    assert "accepts double for no chip (sm_80, sm_90, sm_100)" in finding.reason
    assert "only tuple comprehensions are supported" in finding.reason
    assert f"(kernel double, line 10: `value = {LISTED}`)" in finding.reason


def test_a_refusal_is_replayed_in_the_same_words(
    tmp_path: Path, zygote: Zygote, capsys: pytest.CaptureFixture[str]
) -> None:
    text = TRITON.replace("BODY", LISTED)
    (finding,) = judged(zygote, text).findings
    assert finding.violation is not None
    reference, candidate = tmp_path / "reference.py", tmp_path / "k.py"
    reference.write_text(REFERENCE)
    candidate.write_text(text)
    line = finding.violation.replay
    assert run(["replay", line, str(candidate)]) == 1
    shown = "".join(capsys.readouterr().out.split())
    assert "".join(finding.violation.message.split()) in shown
    mended = TRITON.replace("BODY", "2 * tl.load(x + offsets, offsets < n)")
    program, repaired = kernelbench.from_source(REFERENCE, mended, "k")
    assert replay(line, program, repaired, Options(zygote=zygote)).finding is None
    # Where nothing can be compiled, the recipe has not been run.
    launch = "double[(triton.cdiv(x.numel(), 64),)](x, out, x.numel(), BLOCK=64)"
    without = mended.replace(launch, "out.copy_(x).add_(x)")
    program, empty = kernelbench.from_source(REFERENCE, without, "k")
    with pytest.raises(UsageError, match="cannot be run here"):
        replay(line, program, empty, Options(zygote=zygote))


def test_what_both_refuse_is_told_by_both(zygote: Zygote) -> None:
    body = "tl.load(x + offsets, offsets < n) + tl.arange(0, 7)"
    (finding,) = judged(zygote, TRITON.replace("BODY", body), fast=False, budget=0.2).findings
    said = f"arange's range must be a power of 2 (kernel double, line 10: `value = {body}`)"
    assert finding.reason == f"raised ValueError instead of answering: {said}"
    assert any("for no chip" in note and said in note for note in finding.notes)


def test_a_kernel_that_compiles_and_one_that_is_not_needed_are_left_alone(zygote: Zygote) -> None:
    plain = TRITON.replace("BODY", "2 * tl.load(x + offsets, offsets < n)")
    assert judged(zygote, plain).findings[0].outcome is Outcome.PASS
    text = TRITON.replace("BODY", LISTED).replace(
        "        double[", "        try:\n            double["
    )
    text = text.replace(
        "        return out",
        "        except Exception:\n            out = torch.add(x, x)\n        return out",
    )
    (finding,) = judged(zygote, text).findings
    assert finding.outcome is Outcome.PASS
    assert any("does not compile double" in note or "for no chip" in note for note in finding.notes)


@needs_nvcc
def test_cuda_is_compiled_where_it_cannot_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    reference, candidate = tmp_path / "reference.py", tmp_path / "k.py"
    reference.write_text(REFERENCE)
    candidate.write_text(CUDA.replace("BODY", "o[i] = 2 * x[i]"))
    record = tmp_path / "record.json"
    assert run(["verify", str(candidate), "--json", str(record)]) == 1
    words = 'expected a ";" (kernel doubled, line 10: `o[i] = 2 * x[i] }`)'
    assert words in " ".join(capsys.readouterr().out.split())
    found = json.loads(record.read_text())["findings"]
    assert [f["gate"] for f in found if f["outcome"] == "violation"] == ["wrong-value"]
    assert words in found[0]["violation"]["message"]


@needs_nvcc
@pytest.mark.parametrize(
    ("body", "convicts", "words"),
    [
        # What is not defined here may be in a header that is not.
        ("o[i] = two * x[i];", False, '"two" is undefined (kernel doubled, line 9: `o[i] = two'),
        ('asm volatile("nonsense;");', True, "for no chip (sm_90): ptxas: error"),
    ],
)
def test_what_may_be_missing_here_convicts_nobody(
    monkeypatch: pytest.MonkeyPatch, body: str, convicts: bool, words: str
) -> None:
    monkeypatch.setattr(refused, "CHIPS", (chip("sm_90"),))
    program, candidate = kernelbench.from_source(REFERENCE, CUDA.replace("BODY", body), "k")
    violation, notes = refused.held(program, candidate, (), isolation="full")
    assert (violation is not None) is convicts
    assert words in (violation.message if violation is not None else notes[0])


def test_without_a_compiler_nothing_is_held_against_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nvcc, "find", lambda: None)
    program, candidate = kernelbench.from_source(REFERENCE, CUDA.replace("BODY", "o[0] = 1"), "k")
    violation, notes = refused.held(program, candidate, (), isolation="full")
    assert violation is None
    assert "no nvcc" in notes[0]


@needs_nvcc
def test_one_chip_is_enough_unless_another_one_is_declared(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(refused, "CHIPS", (chip("sm_80"), chip("sm_90")))
    text = CUDA.replace("BODY", 'asm volatile("fence.proxy.async;");')
    program, candidate = kernelbench.from_source(REFERENCE, text, "k")
    violation, notes = refused.held(program, candidate, (), isolation="full")
    assert violation is None
    assert "nvcc does not compile doubled for sm_80: ptxas: error: Modifier '.async'" in notes[0]
    governed = Governed(program, Declared(resources=Resources(chips=("sm_80",))))
    violation, _ = refused.held(governed, candidate, (), isolation="full")
    assert violation is not None
    assert "for sm_80: ptxas: error: Modifier '.async'" in violation.message


def test_a_violation_found_before_is_kept() -> None:
    new = Violation(probe=Probe(), signature="not compiled", message="no chip")
    old = Finding(
        gate="wrong-value",
        outcome=Outcome.VIOLATION,
        reason="off",
        scope=Scope.EXTENDED,
        violation=Violation(probe=Probe(), signature="value", message="off"),
    )
    (found,) = refused.convicted([old], new)
    assert (found.reason, found.notes) == ("no chip", ("off",))
    (found,) = refused.convicted([replace(old, scope=Scope.DECLARED)], new)
    assert (found.reason, found.notes) == ("off", ("no chip",))
    other = replace(old, gate="tampers")
    assert refused.convicted([other], new) == (other,)


def test_lines_keep_their_numbers_when_a_kernel_is_cut_out() -> None:
    text = "import triton\nX = 1\n\n\n@triton.autotune(\n    configs=[], key=[]\n)\n@triton.jit\n"
    text += "def k(a):\n    # why\n    a + 1\n\n\nimport os; import sys\n"
    cut = standalone(Source(text), "k")
    assert cut.splitlines()[10] == "    a + 1"
    assert "autotune" not in cut
    # Two statements on one line are written anew.
    shared = standalone(Source("import triton; X = 1\n@triton.jit\ndef k(a):\n    a + 1\n"), "k")
    assert "X" not in shared
    assert "def k" in shared


@pytest.mark.parametrize(
    ("words", "text", "grammar"),
    [
        ('expected a ";"', "__global__ void k() {}", True),
        ("expected an expression", "#define A_B(x) x\nA_B(1)", True),
        ("expected an expression", "CUDA_KERNEL_LOOP(i, n) {}", False),
        ('identifier "a" is undefined', "", False),
    ],
)
def test_what_breaks_the_grammar_is_the_sources_own(words: str, text: str, grammar: bool) -> None:
    assert nvcc.breaks_grammar(words, text) is grammar


def test_the_hosts_compiler_is_quoted_too() -> None:
    said = (
        "Error building extension 'm': [1/2] g++ -c main.cpp\n/tmp/x/main.cpp:5:10: error: ‘two’ was "
        "not declared in this scope\n    5 |   return two;\n      |          ^~~\nninja: build stopped\n"
    )
    text = 'S = """\nint f() {\n  return two;\n}\n"""\n'
    told = complaints.words_of(RuntimeError(said), text, "candidate.py")
    assert told == "‘two’ was not declared in this scope (line 3: `return two;`)"
    assert complaints.words_of(ValueError("no"), text, "candidate.py") == ""
