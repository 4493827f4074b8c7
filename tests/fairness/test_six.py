"""Six tasks whose reference, given as the candidate, must be clean, and whose mutants must not.

The tasks are restated here from the problems' descriptions (KernelBench level 1: 29, 87, 3, 95, 34
and 90). With ADJUDGE_CORPUS set to a corpus file, its own first six problems are judged instead.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from adjudge.contract import Outcome, Standing
from adjudge.frontends import kernelbench
from adjudge.judge.verify import Options, verify
from adjudge.worker.client import Zygote

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "benchmarks"))
import corpus
import mutants

HEAD = "import torch\nimport torch.nn as nn\nimport torch.nn.functional as F\n"


def task(constants: str, forward: str, inputs: str, init: str = "", given: str = "") -> str:
    """A reference file of one line each."""
    body = f"        {init}\n" if init else ""
    names = [name.strip() for name in given.split(",") if name.strip()]
    constructor = (
        f"    def __init__(self, {', '.join(names)}):\n        super().__init__()\n{body}"
        if names
        else ""
    )
    arguments = "x, y" if "y" in forward.split("(", 1)[1] and ", y" in forward else "x"
    return (
        f"{HEAD}{constants}\n\nclass Model(nn.Module):\n{constructor}"
        f"    def forward(self, {arguments}):\n        return {forward}\n\n"
        f"def get_inputs():\n    return [{inputs}]\n\n"
        f"def get_init_inputs():\n    return [{', '.join(names)}]\n"
    )


TASKS = {
    "softplus": task("batch = 16\ndim = 1024", "F.softplus(x)", "torch.randn(batch, dim)"),
    "pointwise": task(
        "batch = 8\nchannels = 3\nout = 16\nside = 64",
        "self.conv(x)",
        "torch.randn(batch, channels, side, side)",
        "self.conv = nn.Conv2d(channels, out, kernel_size=1, bias=False)",
        "channels, out",
    ),
    "batched product": task(
        "batch = 32\nm = 64\nk = 96\nn = 128",
        "torch.bmm(x, y)",
        "torch.randn(batch, m, k), torch.randn(batch, k, n)",
    ),
    "cross entropy": task(
        "batch = 512\nclasses = 10",
        "F.cross_entropy(x, y)",
        "torch.randn(batch, classes), torch.randint(0, classes, (batch,))",
    ),
    "instance norm": task(
        "batch = 4\nfeatures = 8\nside = 32",
        "self.norm(x)",
        "torch.randn(batch, features, side, side)",
        "self.norm = nn.InstanceNorm2d(features)",
        "features",
    ),
    "running product": task(
        "batch = 32\nwidth = 512", "torch.cumprod(x, dim=1)", "torch.randn(batch, width)"
    ),
}


def tasks() -> Iterator[tuple[str, str]]:
    path = os.environ.get("ADJUDGE_CORPUS")
    if not path:
        yield from TASKS.items()
        return
    for row in corpus.tasks(Path(path), per_level=2):
        yield row["problem"], row["reference"]


CASES = list(tasks())


@pytest.mark.parametrize(("name", "reference"), CASES, ids=[name for name, _ in CASES])
def test_the_reference_is_clean_and_its_mutants_are_not(
    name: str, reference: str, zygote: Zygote
) -> None:
    program = kernelbench.KernelBenchProgram(reference, name)
    options = Options(zygote=zygote, budget=20, examine=False)
    honest = kernelbench.candidate_from(reference + mutants.HONEST, name)
    verdict = verify(program, honest, options)
    assert verdict.standing is Standing.SOUND, [(f.gate, f.reason) for f in verdict.violations]
    applying = [f for f in verdict.findings if f.outcome is not Outcome.NOT_APPLICABLE]
    assert sum(f.outcome is Outcome.PASS for f in applying) >= 0.9 * len(applying)
    for kind in ("wrong constant", "half precision"):
        candidate = kernelbench.candidate_from(mutants.mutants(reference)[kind], name)
        assert verify(program, candidate, options).violations, kind
