"""What `torch.compile` makes of a reference is really compiled, and clean."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import pytest
import torch

from adjudge.contract import Outcome
from adjudge.frontends import kernelbench
from adjudge.judge.verify import Options, verify

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "benchmarks"))
import mutants

REFERENCE = """
import torch

rows, columns = 16, 96


class Model(torch.nn.Module):
    def forward(self, x):
        return torch.softmax(torch.nn.functional.softplus(x), dim=-1)


def get_inputs():
    return [torch.randn(rows, columns)]


def get_init_inputs():
    return []
"""


ON_A_GPU = pytest.param(
    {"runner": "cuda"},
    marks=(
        pytest.mark.gpu,
        pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an NVIDIA GPU"),
    ),
    id="cuda",
)


@pytest.mark.skipif(shutil.which("g++") is None, reason="Inductor needs a C++ compiler")
@pytest.mark.parametrize("where", [pytest.param({"face": "cpu"}, id="cpu"), ON_A_GPU])
def test_a_compiled_reference_is_convicted_of_nothing(where: dict[str, str]) -> None:
    program = kernelbench.KernelBenchProgram(REFERENCE, "compiled")
    candidate = kernelbench.candidate_from(REFERENCE + mutants.COMPILED, "compiled")
    options = Options(budget=8, examine=False, allow_compiler=True, timeout=120, **where)
    verdict = verify(program, candidate, options)
    assert not verdict.violations, [(f.gate, f.reason) for f in verdict.violations]
    (ordinary,) = (f for f in verdict.findings if f.gate == "wrong-value")
    assert ordinary.outcome is Outcome.PASS, ordinary.reason
