"""Outputs whose shape is written into the program, where the task's own sizes are out of reach."""

from __future__ import annotations

import pytest

from adjudge.contract import Scope
from adjudge.frontends import kernelbench
from adjudge.judge.verify import Options, verify
from adjudge.worker.client import Zygote

TASK = """
import torch

rows, columns = 4096, 2048


class NAME(torch.nn.Module):
    def forward(self, x):
        BODY


def get_inputs():
    return [torch.randn(rows, columns)]


def get_init_inputs():
    return []
"""
REFERENCE = TASK.replace("NAME", "Model").replace("BODY", "return x.sum(-1)")
WRITTEN = "out = x.new_zeros(rows)\n        out[: len(x)] = x.sum(-1)\n        return out"


@pytest.mark.parametrize(
    ("body", "scope"),
    [(WRITTEN, Scope.EXTENDED), ("return x.sum(-1).double()", Scope.DECLARED)],
    ids=["native sizes", "another dtype"],
)
def test_a_shape_that_is_right_at_the_native_sizes_is_no_declared_fault(
    body: str, scope: Scope, zygote: Zygote
) -> None:
    candidate = TASK.replace("NAME", "ModelNew").replace("BODY", body)
    program, found = kernelbench.from_source(REFERENCE, candidate, "written")
    options = Options(zygote=zygote, examine=False, gates=("wrong-metadata", "shape-dependent"))
    (finding,) = verify(program, found, options).violations
    assert (finding.gate, finding.scope) == ("wrong-metadata", scope)
