"""Roundings that many outputs share: they do not average out, and what averages them is honest."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils._python_dispatch import TorchDispatchMode

from adjudge import arrays
from adjudge.observation import Observation, OutputTensor, Status
from adjudge.oracle import Oracle, rules
from adjudge.oracle.finals import FinalOracle
from adjudge.oracle.regimes import regime
from adjudge.program import Arguments

aten = torch.ops.aten
Narrow = Callable[[torch.Tensor], torch.Tensor]


def rounded(x: torch.Tensor, bits: int = 11) -> torch.Tensor:
    """To so many significant bits, to nearest."""
    mantissa, exponent = torch.frexp(x)
    return torch.ldexp(torch.round(mantissa * 2**bits) / 2**bits, exponent)


def cut(x: torch.Tensor, bits: int = 11) -> torch.Tensor:
    """The same toward zero."""
    mantissa, exponent = torch.frexp(x)
    return torch.ldexp(torch.trunc(mantissa * 2**bits) / 2**bits, exponent)


def eight(x: torch.Tensor) -> torch.Tensor:
    return rounded(x, 8)


class Operands(TorchDispatchMode):
    """Runs a program with the operands of its products narrowed, of one after the other in turn."""

    def __init__(self, *narrow: Narrow) -> None:
        super().__init__()
        self._narrow = narrow
        self._met = 0

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        if func in (aten.convolution.default, aten.mm.default, aten.bmm.default):
            narrow = self._narrow[self._met % len(self._narrow)]
            self._met += 1
            args = (narrow(args[0]), narrow(args[1]), *args[2:])
        return func(*args, **(kwargs or {}))


def seen(*tensors: tuple[str, torch.Tensor]) -> Observation:
    outputs = tuple(
        OutputTensor(
            path=path, data=arrays.to_numpy(t).copy(), dtype="float32", strides=(), device="cpu"
        )
        for path, t in tensors
    )
    structure = "tensor" if len(tensors) == 1 else f"({', '.join(['tensor'] * len(tensors))})"
    return Observation(status=Status.ANSWERED, outputs=outputs, structure=structure)


def deep() -> nn.Module:
    """Three convolutions, each with a batch normalisation and a relu behind it."""
    torch.manual_seed(0)
    layers: list[nn.Module] = []
    for before, after in ((3, 16), (16, 32), (32, 32)):
        convolution = nn.Conv2d(before, after, 3, padding=1, bias=False)
        layers += [convolution, nn.BatchNorm2d(after), nn.ReLU()]
    return nn.Sequential(*layers)


IMAGES = torch.randn(4, 3, 16, 16, generator=torch.Generator().manual_seed(1))
RUNNING = tuple(name for name in deep().state_dict() if "running" in name)


def statistics(*narrow: Narrow) -> Observation:
    net = deep()
    with torch.no_grad(), Operands(*narrow):
        net(IMAGES)
    return seen(*((f"final {name}", net.state_dict()[name]) for name in RUNNING))


@pytest.fixture(scope="module")
def running() -> FinalOracle:
    """Of the running statistics of all three."""
    return FinalOracle(deep, Arguments(args=(IMAGES,)), generic=True, names=RUNNING)


@pytest.mark.parametrize(
    "narrow", [(rounded,), (cut,), (cut, rounded, rounded)], ids=["rounded", "cut", "one cut"]
)
def test_running_statistics_of_tf32_convolutions_are_honest(
    running: FinalOracle, narrow: tuple[Narrow, ...]
) -> None:
    found = running.compare(statistics(*narrow), "tf32", confirm=True)
    assert found.ok, found
    assert found.rms < 1.5


def test_those_of_eight_bits_are_not(running: FinalOracle) -> None:
    assert running.compare(statistics(eight), "tf32", confirm=True).broken
    assert running.compare(statistics(eight), "bf16xfp32", confirm=True).ok
    assert running.compare(statistics(rounded), "fp32", confirm=True).broken


def drawn(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


AVERAGED: list[tuple[str, Callable[..., torch.Tensor], tuple[torch.Tensor, ...]]] = [
    ("rows", lambda a, b: (a @ b).mean(0), (drawn(2048, 64).abs(), drawn(64, 32, seed=1))),
    (
        "pixels",
        lambda x, w: F.conv2d(x, w).mean((0, 2, 3)),
        (drawn(4, 16, 24, 24).abs(), drawn(32, 16, 3, 3, seed=1)),
    ),
    (
        "queries",
        lambda q, k, v: (torch.softmax(q @ k.mT / 8, -1) @ v).mean(1),
        (drawn(2, 256, 64), drawn(2, 256, 64, seed=1), drawn(2, 256, 32, seed=2)),
    ),
    ("positive", lambda a, b: a @ b, (drawn(16, 1024).abs(), drawn(1024, 24, seed=1).abs())),
]


@pytest.mark.parametrize(("name", "function", "given"), AVERAGED, ids=[a[0] for a in AVERAGED])
def test_means_of_products_are_honest_and_eight_bits_told_from_eleven(
    name: str, function: Callable[..., torch.Tensor], given: tuple[torch.Tensor, ...]
) -> None:
    oracle = Oracle(lambda: function, Arguments(args=given), generic=True)
    grades = []
    for narrow in (rounded, cut, eight):
        with Operands(narrow):
            answer = seen(("", function(*given)))
        grades.append(oracle.grade(answer))
        assert oracle.compare(answer, grades[-1], confirm=True).ok
    assert grades == ["tf32", "tf32", "bf16xfp32"]


def test_equal_values_are_rounded_alike() -> None:
    noise = rules.Noise(regime("tf32"), 3, worst=False)
    x = drawn(1 << 12)
    (one, other) = noise.operands(x.double(), x.double().flip(0))
    assert torch.equal(one, other.flip(0))
    off = (one / x.double() - 1) / regime("tf32").operand
    assert off.abs().max() <= 1
    assert off.square().mean().item() == pytest.approx(1 / 3, rel=0.05)
    assert abs(off.mean().item()) < 0.05
    (again,) = rules.Noise(regime("tf32"), 4, worst=False).operands(x.double())
    mixed = torch.corrcoef(torch.stack([one / x.double(), again / x.double()]))[0, 1]
    assert abs(mixed.item()) < 0.08


def test_a_product_alone_errs_as_much_as_its_operands_twice_over() -> None:
    a, b = drawn(32, 64), drawn(64, 32, seed=1)
    oracle = Oracle(lambda: torch.matmul, Arguments(args=(a, b)), generic=True)
    spread = oracle.envelope(regime("tf32"), 128)[0]
    root = ((a.double() ** 2) @ (b.double() ** 2)).sqrt().numpy()
    share = np.sqrt(np.mean((spread / root) ** 2)) / regime("tf32").operand
    assert share == pytest.approx(2 / np.sqrt(3), rel=0.05)
