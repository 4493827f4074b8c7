"""How the worker asks a candidate for gradients: autograd, functions of its own, explicit backward."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch

from adjudge.worker.gradients import Pulled, explicit_backward, pull


class Scaled(torch.autograd.Function):
    """x * w, with a backward pass that overwrites what it has saved if told to."""

    @staticmethod
    def forward(ctx: Any, x: Any, w: Any, overwrite: bool) -> Any:
        ctx.x, ctx.w, ctx.overwrite = x.detach().clone(), w.detach(), overwrite
        return x * w

    @staticmethod
    def backward(ctx: Any, g: Any) -> Any:
        dx, dw = g * ctx.w, (g * ctx.x).flatten(0, -2).sum(0)
        if ctx.overwrite:
            ctx.x.mul_(g)
        return dx, dw, None


class Module(torch.nn.Module):
    def __init__(self, how: str) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.linspace(1, 2, 4))
        self.how = how

    def forward(self, x: Any) -> Any:
        if self.how == "autograd":
            return x * self.weight
        if self.how == "cut":
            return (x * self.weight).detach()
        return Scaled.apply(x, self.weight, self.how == "overwriting")


class Explicit(Module):
    def __init__(self, returns: str = "tuple") -> None:
        super().__init__("cut")
        self.returns = returns

    def backward(self, grad: Any, x: Any) -> Any:
        dx, dw = grad * self.weight, (grad * x).flatten(0, -2).sum(0)
        if self.returns == "mapping":
            return {"weight": dw, "args[0]": dx}
        if self.returns == "grad":
            self.weight.grad = dw
            return dx
        if self.returns == "double":
            return dx.double(), dw.double()
        return dx, dw if self.returns == "tuple" else None


def pulled(built: Any, x: torch.Tensor, g: torch.Tensor, *, twice: bool = False) -> Pulled:
    explicit = explicit_backward(built, SimpleNamespace(), "ModelNew")
    # A worker runs its candidates without autograd.
    with torch.no_grad():
        wanted = ("args[0]", "weight")
        return pull(built, explicit, (x,), {}, wanted=wanted, cotangents=(g,), twice=twice)


def expected(x: torch.Tensor, g: torch.Tensor) -> dict[str, torch.Tensor]:
    weight = torch.linspace(1, 2, 4)
    return {"args[0]": g * weight, "weight": (g * x).flatten(0, -2).sum(0)}


BUILT = [
    ("autograd", lambda: Module("autograd")),
    ("function", lambda: Module("function")),
    ("explicit", Explicit),
    ("explicit", lambda: Explicit("mapping")),
    ("explicit", lambda: Explicit("grad")),
    ("explicit", lambda: Explicit("double")),
]


@pytest.mark.parametrize(("kind", "make"), BUILT)
@pytest.mark.parametrize("shape", [(3, 4), (2, 3, 4), (2, 2, 3, 4)], ids=len)
@pytest.mark.parametrize("cotangent", ["dense", "expanded", "sliced", "transposed"])
def test_every_way_gives_every_gradient(
    kind: str, make: Any, shape: tuple[int, ...], cotangent: str
) -> None:
    x, drawn = torch.randn(shape), torch.randn(shape)
    g = {
        "dense": drawn,
        "expanded": torch.ones(()).expand(shape),
        "sliced": torch.stack([drawn, drawn], -1)[..., 0],
        "transposed": drawn.transpose(0, -1).contiguous().transpose(0, -1),
    }[cotangent]
    found = pulled(make(), x, g)
    assert found.backward == kind
    for name, truth in expected(x, g).items():
        gradient = found.gradients[name]
        assert gradient is not None
        assert gradient.dtype is torch.float32
        torch.testing.assert_close(gradient, truth)


@pytest.mark.parametrize(("kind", "make"), BUILT)
def test_a_second_pass_gives_the_same(kind: str, make: Any) -> None:
    x, g = torch.randn(3, 4), torch.randn(3, 4)
    found = pulled(make(), x, g, twice=True)
    for name, truth in expected(x, g).items():
        torch.testing.assert_close(found.gradients[name], truth)


def test_a_second_pass_shows_what_the_first_has_overwritten() -> None:
    x, g = torch.randn(3, 4), torch.randn(3, 4)
    once = pulled(Module("overwriting"), x, g)
    torch.testing.assert_close(once.gradients["weight"], expected(x, g)["weight"])
    again = pulled(Module("overwriting"), x, g, twice=True)
    assert not torch.allclose(again.gradients["weight"], expected(x, g)["weight"])  # type: ignore[arg-type]


def test_a_graph_that_is_cut_has_no_gradient() -> None:
    found = pulled(Module("cut"), torch.randn(3, 4), torch.randn(3, 4))
    assert found.backward == ""
    assert found.gradients == {"args[0]": None, "weight": None}
    assert found.disconnected == ("",)


def test_what_an_explicit_backward_leaves_out_is_missing() -> None:
    found = pulled(Explicit("nothing for the weight"), torch.randn(3, 4), torch.randn(3, 4))
    assert found.gradients["weight"] is None
    assert found.gradients["args[0]"] is not None


def test_a_function_has_its_backward_beside_it() -> None:
    def square(x: torch.Tensor) -> torch.Tensor:
        return x * x

    def square_backward(grad: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        return 2 * x * grad

    file = SimpleNamespace(square=square, square_backward=square_backward)
    explicit = explicit_backward(square, file, "square")
    x, g = torch.randn(5), torch.randn(5)
    found = pull(square, explicit, (x,), {}, wanted=("args[0]",), cotangents=(g,), twice=False)
    assert found.backward == "explicit"
    torch.testing.assert_close(found.gradients["args[0]"], 2 * x * g)


def test_more_gradients_than_there_is_room_for_is_an_error() -> None:
    def grads(grad: Any, x: Any) -> Any:
        return grad, grad

    x = torch.randn(3)
    with pytest.raises(TypeError, match="2 gradients for 1"):
        pull(torch.relu, grads, (x,), {}, wanted=("args[0]",), cotangents=(x,), twice=False)


@pytest.mark.parametrize(("kind", "make"), BUILT[:4])
def test_a_parameter_of_another_name_is_asked_for_by_that(kind: str, make: Any) -> None:
    built, x, g = make(), torch.randn(3, 4), torch.randn(3, 4)
    found = pull(
        built,
        explicit_backward(built, SimpleNamespace(), "ModelNew"),
        (x,),
        {},
        wanted=("args[0]", "norm.scale", "norm.shift"),
        cotangents=(g,),
        twice=False,
        counterparts={"norm.scale": "weight"},
    )
    assert found.backward == kind
    assert list(found.gradients) == ["args[0]", "norm.scale", "norm.shift"]
    torch.testing.assert_close(found.gradients["norm.scale"], expected(x, g)["weight"])
    assert found.gradients["norm.shift"] is None
