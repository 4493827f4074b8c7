"""What a candidate is written in, and what is said where it cannot run: never a conviction."""

from __future__ import annotations

import importlib.util

import pytest

from adjudge.contract import Outcome, Standing, Verdict
from adjudge.errors import UsageError
from adjudge.frontends import kernelbench
from adjudge.frontends.sources import language, languages
from adjudge.judge.verify import Options, verify
from adjudge.worker.client import Zygote

REFERENCE = """
import torch

class Model(torch.nn.Module):
    def forward(self, x):
        return 2 * x

def get_inputs():
    return [torch.randn(4, 16)]

def get_init_inputs():
    return []
"""
CANDIDATE = """
import torch
{}

class ModelNew(torch.nn.Module):
    def forward(self, x):
        {}
"""
INLINE = "from torch.utils.cpp_extension import load_inline\n"
BUILT = INLINE + "m = load_inline('m', '', cuda_sources='__global__ void k() {}', functions=['k'])"


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ("import tilelang\nimport tilelang.language as T\n", ("tilelang",)),
        ("from tilelang import language as T\nimport triton\n", ("tilelang", "triton")),
        (
            "def f():\n    import importlib\n    importlib.import_module('tilelang')\n",
            ("tilelang",),
        ),
        ("import cutlass.cute as cute\n", ("cute",)),
        ("from cutlass.cute.runtime import from_dlpack\n", ("cute",)),
        ("import triton.language as tl\n", ("triton",)),
        ("from triton.experimental import gluon\n", ("triton",)),
        (INLINE + "import triton\n", ("triton", "cuda")),
        (INLINE, ("cuda",)),
        # Words are no imports.
        ("# A port of the triton kernel of cutlass.\nimport torch\n", ("torch",)),
        ("from . import triton\n", ("torch",)),
        ("def broken(:\n", ("torch",)),
    ],
)
def test_a_language_is_named_by_what_is_imported(source: str, found: tuple[str, ...]) -> None:
    assert languages(source) == found
    assert language(source) == found[0]


def judged(top: str, body: str, zygote: Zygote) -> Verdict:
    program, candidate = kernelbench.from_source(REFERENCE, CANDIDATE.format(top, body), "k")
    options = Options(zygote=zygote, examine=False, gates=("wrong-value", "stale-output"))
    return verify(program, candidate, options)


@pytest.mark.parametrize(
    ("package", "words"),
    [("tilelang", "TileLang runs on a GPU only"), ("cutlass", "install nvidia-cutlass-dsl")],
)
@pytest.mark.parametrize("late", [False, True])
def test_an_absent_package_is_no_fault_of_the_candidate(
    package: str, words: str, late: bool, zygote: Zygote
) -> None:
    if importlib.util.find_spec(package) is not None:
        pytest.skip(f"{package} is here")
    line = f"import {package}"
    with pytest.raises(UsageError, match=package) as raised:
        judged("" if late else line, f"{line}; return 2 * x" if late else "return 2 * x", zygote)
    assert words in str(raised.value.todo)


def test_an_error_that_a_candidate_makes_up_is_its_own(zygote: Zygote) -> None:
    words = "No module named 'torch'"
    verdict = judged("", f'raise ModuleNotFoundError("{words}")', zygote)
    assert verdict.standing is Standing.VIOLATING


def test_cuda_is_not_judged_without_a_gpu(zygote: Zygote) -> None:
    verdict = judged(BUILT, "return m.k(x)", zygote)
    assert verdict.standing is Standing.INCONCLUSIVE
    assert {f.outcome for f in verdict.findings} == {Outcome.NOT_APPLICABLE}
    assert all("CUDA C++ cannot be run without a GPU" in f.reason for f in verdict.findings)


def test_what_answers_all_the_same_is_judged(zygote: Zygote) -> None:
    assert judged(INLINE, "return 2 * x", zygote).standing is Standing.SOUND
    assert judged(INLINE, "return 3 * x", zygote).standing is Standing.VIOLATING
