"""The envelope of gradients: honest backward passes lie within it, and wrong ones do not."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from adjudge import arrays
from adjudge.inputs import cotangents
from adjudge.observation import GRADIENT, Observation, OutputTensor, Status
from adjudge.oracle.compare import Judgement
from adjudge.oracle.gradients import GradientOracle, pull
from adjudge.program import Arguments

sys.path.insert(0, str(Path(__file__).parent))
from backward_modules import ROWS, Row, loaded

REGIMES = {torch.float32: "fp32", torch.bfloat16: "bf16xfp32", torch.float16: "fp16xfp32"}
#: Modules whose backward passes end in an operation with a rule of its own.
RULED = (
    "conv2d", "depthwise", "conv-transpose1d", "conv3d", "max-pool2d", "max-pool3d", "avg-pool2d",
    "avg-pool3d", "adaptive-avg2d", "adaptive-max2d", "embedding", "embedding-bag", "indexing",
    "gather", "scatter-add", "index-add", "unfold", "bilinear", "bicubic", "nearest",
    "reflection-pad", "replication-pad", "layer-norm", "group-norm", "batch-norm", "softmax",
    "cross-entropy", "gelu", "logsigmoid", "cumprod", "bilinear-form", "outer-sub",
    "hardshrink", "attention",
)  # fmt: skip
#: Those that add up in the memory of their result, which half precision shows.
IN_MEMORY = ("avg-pool2d", "adaptive-avg2d", "embedding", "indexing", "unfold", "reflection-pad")
BY_NAME = {row[0]: row for row in ROWS}


def oracle_of(
    make: Callable[[], Any], arguments: Arguments, *, kind: str = "random", seed: int = 0
) -> tuple[GradientOracle, dict[str, torch.Tensor]]:
    """The oracle, and the gradients that torch gives natively."""
    given: dict[int, torch.Tensor] = {}

    def draw(index: int, output: torch.Tensor) -> torch.Tensor:
        values = np.array(cotangents.values(kind, tuple(output.shape), seed, index))
        given[index] = torch.from_numpy(values).reshape(output.shape).to(output.dtype)
        return given[index]

    found = pull(make(), arguments, draw)
    oracle = GradientOracle(
        make,
        arguments,
        generic=True,
        cotangents=[given.get(i) for i in range(max(given) + 1)],
        names=tuple(found),
        seed=seed,
    )
    return oracle, found


def of_row(
    row: Row, dtype: torch.dtype, kind: str = "random", seed: int = 0
) -> tuple[GradientOracle, dict[str, torch.Tensor]]:
    torch.manual_seed(seed)
    names = loaded(row)
    inputs = [t.to(dtype) if t.is_floating_point() else t for t in names["get_inputs"]()]

    def make() -> Any:
        torch.manual_seed(seed)
        return names["Model"]().to(dtype)

    return oracle_of(make, Arguments(args=tuple(inputs)), kind=kind, seed=seed)


def observed(gradients: dict[str, torch.Tensor]) -> Observation:
    outputs = tuple(
        OutputTensor(
            path=f"{GRADIENT}{name}",
            data=arrays.to_numpy(g),
            dtype=arrays.dtype_name(g.dtype),
            strides=tuple(g.stride()),
            device="cpu",
        )
        for name, g in gradients.items()
    )
    structure = f"({', '.join(['tensor'] * len(outputs))})"
    return Observation(status=Status.ANSWERED, outputs=outputs, structure=structure)


def within(oracle: GradientOracle, found: dict[str, torch.Tensor], dtype: torch.dtype) -> bool:
    """By the bound alone, which the native reference's own error does not widen."""
    regime = oracle._regime(REGIMES[dtype])
    return Judgement(oracle, observed(found), regime, widen=False).verdict().ok


@pytest.mark.parametrize("name", RULED)
@pytest.mark.parametrize("kind", ["random", "one-hot"])
def test_an_honest_backward_pass_lies_within(name: str, kind: str) -> None:
    oracle, found = of_row(BY_NAME[name], torch.float32, kind)
    assert within(oracle, found, torch.float32)
    assert not oracle.unruled


@pytest.mark.parametrize("name", IN_MEMORY)
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_a_sum_kept_in_half_precision_memory_is_honest(name: str, dtype: torch.dtype) -> None:
    oracle, found = of_row(BY_NAME[name], dtype)
    assert within(oracle, found, dtype)


@pytest.mark.parametrize("name", RULED)
def test_a_hundredth_too_much_is_not(name: str) -> None:
    oracle, found = of_row(BY_NAME[name], torch.float32)
    wrong = {key: g * 1.01 for key, g in found.items()}
    assert oracle.compare(observed(wrong), "fp32").broken


def test_another_order_of_a_scatter_is_honest() -> None:
    x, t = torch.randn(6, 4), torch.randint(0, 6, (500,))
    oracle, found = oracle_of(lambda: lambda x: x[t], Arguments(args=(x,)))
    g = torch.from_numpy(np.array(cotangents.values("random", (500, 4), 0, 0))).float()
    backwards = torch.zeros(6, 4)
    for row in reversed(range(500)):
        backwards[t[row]] += g[row]
    assert within(oracle, {"args[0]": backwards}, torch.float32)
    dropped = backwards.clone()
    dropped[t[7]] -= g[7]
    assert not within(oracle, {"args[0]": dropped}, torch.float32)
    assert found["args[0]"].shape == backwards.shape


@pytest.mark.parametrize(
    ("function", "x", "other"),
    [
        (torch.relu, torch.tensor([0.0, *[1.0] * 20]), 1.0),
        (torch.abs, torch.tensor([0.0, *[-1.0] * 20]), -1.0),
        (lambda x: x.view(-1, 3).amax(1), torch.tensor([2.0, 2.0, 1.0, *range(30)]), 0.0),
    ],
    ids=["relu", "abs", "amax"],
)
def test_at_a_kink_any_convention_is_right(
    function: Callable[[torch.Tensor], torch.Tensor], x: torch.Tensor, other: float
) -> None:
    oracle, found = oracle_of(lambda: function, Arguments(args=(x,)))
    native = found["args[0]"]
    g = native.abs().max()
    bent = native.clone()
    bent[0] = other * g
    assert oracle.compare(observed({"args[0]": bent}), "fp32").ok
    beside = native.clone()
    beside[-1] += g
    comparison = oracle.compare(observed({"args[0]": beside}), "fp32")
    assert comparison.broken
    assert comparison.excluded > 0


def test_where_most_elements_hang_on_a_kink_nothing_is_decided() -> None:
    oracle, found = oracle_of(lambda: torch.relu, Arguments(args=(torch.zeros(12),)))
    comparison = oracle.compare(observed({"args[0]": found["args[0]"] + 1}), "fp32")
    assert comparison.outcome == "undecided"


def test_an_operation_without_a_bound_never_convicts() -> None:
    grid = torch.rand(1, 3, 3, 2) * 1.2 - 0.6

    def sampled(x: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.grid_sample(x, grid.to(x.dtype), align_corners=False)

    oracle, found = oracle_of(lambda: sampled, Arguments(args=(torch.randn(1, 2, 5, 5),)))
    comparison = oracle.compare(observed({"args[0]": found["args[0]"] * 2}), "fp32")
    assert oracle.unruled
    assert comparison.outcome == "undecided"
    assert oracle.compare(observed(found), "fp32").ok
