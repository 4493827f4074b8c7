"""What a reference means at another rank: a batch in its leading dimensions, or nothing is asked."""

from __future__ import annotations

import pytest

from adjudge.frontends.kernelbench import KernelBenchProgram
from adjudge.judge.cases import Case, CaseBuilder
from adjudge.probe import Probe, sizes_of
from adjudge.program import OutsideDomain

HEAD = (
    "import torch\nimport torch.nn as nn\nimport torch.nn.functional as F\nrows = 6\nwide = 16\n\n"
)
X, Y = "torch.randn(rows, wide)", "torch.randn(rows, 4, wide)"
TABLE = "torch.randn(6, wide)"


def build(body: str, rank: int, given: str = "x", inputs: str = X, init: str = "pass") -> Case:
    source = (
        f"{HEAD}class Model(nn.Module):\n    def __init__(self):\n        super().__init__()\n"
        f"        {init}\n\n    def forward(self, {given}):\n        return {body}\n\n"
        f"def get_inputs():\n    return [{inputs}]\n\ndef get_init_inputs():\n    return []\n"
    )
    program = KernelBenchProgram(source, "t")
    probe = Probe(sizes=sizes_of(program.task.native), rank=rank, cotangent="random")
    return CaseBuilder(program, by_name=True).build(probe)


@pytest.mark.parametrize(
    ("body", "rank", "rest", "shapes"),
    [
        ("torch.softmax(x, -1)", 3, {}, [(2, 3, 16)]),
        ("F.linear(x, self.w)", 4, {"init": "self.w = nn.Parameter(torch.rand(5, 16))"}, None),
        ("F.gelu(x)", 2, {"inputs": Y}, [(24, 16)]),
        ("x.square().mean()", 4, {}, [(1, 2, 3, 16)]),
        (
            "x * s + t[..., None]",
            3,
            {"given": "x, s, t", "inputs": f"{X}, {X}, torch.rand(rows)"},
            [(2, 3, 16), (2, 3, 16), (2, 3)],
        ),
        (  # A weight keeps its shape, though by chance it has as many rows.
            "F.embedding(t, w)",
            3,
            {"given": "t, w", "inputs": f"torch.randint(0, 6, (rows, 4)), {TABLE}"},
            None,
        ),
    ],
)
def test_the_same_rows_in_other_dimensions(
    body: str, rank: int, rest: dict[str, str], shapes: list[tuple[int, ...]] | None
) -> None:
    case = build(body, rank, **rest)
    found = [tuple(t.shape) for _, t in case.arguments.tensors()]
    assert shapes is None or found == shapes
    assert len(found[0]) == rank
    assert case.request.gradients


@pytest.mark.parametrize(
    ("body", "rank", "rest", "words"),
    [
        ("torch.softmax(x, 1)", 3, {}, "leading dimensions"),
        ("x.flatten(1)", 3, {}, "leading dimensions"),
        ("x.reshape(-1, x.shape[-1])", 3, {}, "leading dimensions"),
        ("torch.cumsum(x, 0)", 3, {}, "leading dimensions"),
        ("x.t()", 3, {}, "t\\(\\) expects"),
        ("self.n(x)", 4, {"init": "self.n = nn.BatchNorm1d(16)"}, "expected 2D or 3D"),
        ("torch.softmax(x @ x.mT, -1) @ x", 2, {"inputs": Y}, "leading dimensions"),
        ("x @ w", 3, {"given": "x, w", "inputs": f"{X}, torch.randn(wide, rows)"}, "elsewhere"),
        ("torch.softmax(x, -1)", 2, {}, "cannot be brought to rank 2"),
    ],
)
def test_nothing_is_asked_where_it_means_something_else(
    body: str, rank: int, rest: dict[str, str], words: str
) -> None:
    with pytest.raises(OutsideDomain, match=words):
        build(body, rank, **rest)
