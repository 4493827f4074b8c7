"""What a call leaves behind, on a GPU: final inputs and buffers are compared as answers are."""

from __future__ import annotations

import pytest

from adjudge.contract import Standing
from adjudge.frontends import kernelbench
from adjudge.judge.replay import replay
from adjudge.judge.verify import Options, verify
from adjudge.worker.client import Zygote

pytestmark = pytest.mark.gpu

TASK = """
import torch

rows, columns = 4, 6


class NAME(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.bn = torch.nn.BatchNorm1d(columns)

    def forward(self, x, y):
        BODY


def get_inputs():
    return [torch.randn(rows, columns), torch.randn(rows, columns)]


def get_init_inputs():
    return []
"""
GATES = ("wrong-value", "mutates-input", "retains-state", "nondeterministic", "stale-output")
REFERENCE = "x.add_(y)\nreturn self.bn(x)"
#: The running statistics by hand, and the argument through another tensor.
BY_HAND = """
x.copy_(y + x)
m = x.mean(0)
v = ((x - m) ** 2).mean(0)
n = x.shape[0]
self.bn.running_mean.lerp_(m, 0.1)
self.bn.running_var = 0.9 * self.bn.running_var + 0.1 * v * n / max(n - 1, 1)
self.bn.num_batches_tracked += 1
return (x - m) / torch.sqrt(v + self.bn.eps) * self.bn.weight + self.bn.bias
"""


def source(body: str, name: str) -> str:
    return TASK.replace("NAME", name).replace("BODY", "\n        ".join(body.strip().splitlines()))


def test_what_is_left_as_the_reference_leaves_it_is_no_fault(gpu: Zygote) -> None:
    reference, candidate = source(REFERENCE, "Model"), source(BY_HAND, "ModelNew")
    program, found = kernelbench.from_source(reference, candidate, "by hand")
    options = Options(zygote=gpu, runner="cuda", examine=False, gates=GATES)
    verdict = verify(program, found, options)
    assert verdict.standing is Standing.SOUND, [(f.gate, f.reason) for f in verdict.violations]


@pytest.mark.parametrize(
    ("part", "instead", "where"),
    [
        ("x.copy_(y + x)", "x = y + x", "args[0]"),
        ("self.bn.num_batches_tracked += 1", "pass", "bn.num_batches_tracked"),
        (" * n / max(n - 1, 1)", "", "bn.running_var"),
    ],
)
def test_what_is_left_otherwise_convicts_and_replays(
    part: str, instead: str, where: str, gpu: Zygote
) -> None:
    assert BY_HAND.count(part) == 1
    broken = source(BY_HAND.replace(part, instead), "ModelNew")
    program, candidate = kernelbench.from_source(source(REFERENCE, "Model"), broken, "broken")
    options = Options(zygote=gpu, runner="cuda", examine=False, gates=("wrong-value",), fast=True)
    (finding,) = verify(program, candidate, options).violations
    assert finding.violation is not None
    assert finding.violation.where == f"final {where}"
    again = replay(finding.violation.replay, program, candidate, options)
    assert again.finding is not None
    assert again.same_inputs
    assert again.same_outputs
