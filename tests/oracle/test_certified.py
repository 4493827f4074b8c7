"""The float64 oracle against arbitrary precision, and the envelope against what it must bound."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import mpmath as mp
import numpy as np
import pytest
import torch
import torch.nn.functional as F

from adjudge.inputs.sampler import Sampler
from adjudge.observation import Observation, OutputTensor, Status
from adjudge.oracle import Oracle
from adjudge.oracle.regimes import REGIMES, regime
from adjudge.oracle.statistics import element_multiple, student_quantile, student_tail
from adjudge.program import Arguments

mp.mp.dps = 60
Function = Callable[..., Any]


def drawn(*shape: int, seed: int = 0, distribution: str = "declared") -> torch.Tensor:
    return torch.from_numpy(Sampler(seed, distribution).floats(shape, "normal")).float()


def oracle(function: Function, *tensors: torch.Tensor, generic: bool = True) -> Oracle:
    return Oracle(lambda: function, Arguments(args=tensors), generic=generic)


def observed(*tensors: torch.Tensor) -> Observation:
    outputs = tuple(
        OutputTensor(
            path="" if len(tensors) == 1 else f"[{i}]",
            data=t.numpy(),
            dtype=str(t.dtype).removeprefix("torch."),
            strides=tuple(t.stride()),
            device="cpu",
        )
        for i, t in enumerate(tensors)
    )
    return Observation(status=Status.ANSWERED, outputs=outputs, structure="tensor")


def _mp_softmax(x: list[Any]) -> list[Any]:
    powers = [mp.exp(v) for v in x]
    return [p / mp.fsum(powers) for p in powers]


def _mp_layer_norm(x: list[Any]) -> list[Any]:
    mean = mp.fsum(x) / len(x)
    variance = mp.fsum((v - mean) ** 2 for v in x) / len(x)
    return [(v - mean) / mp.sqrt(variance + mp.mpf("1e-5")) for v in x]


ROWS: list[tuple[str, Function, Callable[[list[Any]], list[Any]]]] = [
    ("softmax", lambda x: torch.softmax(x, -1), _mp_softmax),
    ("log_softmax", lambda x: F.log_softmax(x, -1), lambda x: [mp.log(p) for p in _mp_softmax(x)]),
    (
        "logsumexp",
        lambda x: torch.logsumexp(x, -1),
        lambda x: [mp.log(mp.fsum(map(mp.exp, x)))],
    ),
    ("layer_norm", lambda x: F.layer_norm(x, x.shape[-1:]), _mp_layer_norm),
    ("gelu", F.gelu, lambda x: [v * mp.ncdf(v) for v in x]),
    ("silu", F.silu, lambda x: [v / (1 + mp.exp(-v)) for v in x]),
    ("softplus", F.softplus, lambda x: [mp.log1p(mp.exp(v)) if v <= 20 else v for v in x]),
    ("tanh", torch.tanh, lambda x: [mp.tanh(v) for v in x]),
    ("mish", F.mish, lambda x: [v * mp.tanh(mp.log1p(mp.exp(v))) for v in x]),
    ("sum of squares", lambda x: (x * x).sum(-1), lambda x: [mp.fsum(v * v for v in x)]),
    ("erf", torch.erf, lambda x: [mp.erf(v) for v in x]),
]


@pytest.mark.parametrize(("name", "function", "truth"), ROWS, ids=[row[0] for row in ROWS])
@pytest.mark.parametrize("distribution", ["normal", "normal-3", "offset"])
def test_float64_is_right_to_a_millionth_of_a_float32_rounding(
    name: str, function: Function, truth: Any, distribution: str
) -> None:
    x = drawn(3, 17, distribution=distribution)
    answers = oracle(function, x).exact[0].data.reshape(3, -1)
    for row, got in zip(x.tolist(), answers, strict=True):
        expected = truth([mp.mpf(v) for v in row])
        scale = max(abs(v) for v in expected)
        for a, b in zip(expected, got, strict=True):
            assert abs(a - mp.mpf(float(b))) <= scale * mp.mpf(2) ** -44


def test_matrix_product_is_right() -> None:
    a, b = drawn(4, 33), drawn(33, 5, seed=1)
    got = oracle(torch.matmul, a, b).exact[0].data
    for i in range(4):
        for j in range(5):
            terms = [
                mp.mpf(x) * mp.mpf(y) for x, y in zip(a[i].tolist(), b[:, j].tolist(), strict=True)
            ]
            assert abs(mp.fsum(terms) - mp.mpf(float(got[i, j]))) < mp.mpf(2) ** -44


HONEST: list[tuple[str, Function, tuple[torch.Tensor, ...]]] = [
    ("softmax", lambda x: torch.softmax(x, -1), (drawn(8, 129),)),
    ("layer_norm", lambda x: F.layer_norm(x, x.shape[-1:]), (drawn(8, 200),)),
    ("matmul", torch.matmul, (drawn(16, 300), drawn(300, 24, seed=1))),
    ("conv2d", F.conv2d, (drawn(2, 3, 9, 9), drawn(4, 3, 3, 3, seed=1))),
    ("gelu", F.gelu, (drawn(64, 64),)),
    ("cross_entropy", lambda x: F.cross_entropy(x, torch.arange(16) % 7), (drawn(16, 7),)),
    ("cumsum", lambda x: x.cumsum(-1), (drawn(4, 500),)),
    ("sdpa", F.scaled_dot_product_attention, tuple(drawn(1, 2, 16, 8, seed=s) for s in range(3))),
    ("batch_norm", lambda x: F.batch_norm(x, None, None, training=True), (drawn(8, 5, 6, 6),)),
    ("sigmoid", torch.sigmoid, (drawn(100, distribution="normal-3"),)),
]


@pytest.mark.parametrize(("name", "function", "tensors"), HONEST, ids=[h[0] for h in HONEST])
def test_torch_itself_is_within_the_envelope(
    name: str, function: Function, tensors: tuple[torch.Tensor, ...]
) -> None:
    made = oracle(function, *tensors)
    # Another honest order of summation: one thread's float32 in place of the native bits.
    shifted = observed(function(*(t + 0.0 for t in tensors)))
    assert made.compare(shifted, "fp32").ok
    assert made.grade(shifted) == "fp32"
    exact = torch.from_numpy(made.exact[0].data.astype(np.float32))
    assert made.compare(observed(exact.reshape(made.native[0].data.shape)), "fp32").ok


@pytest.mark.parametrize(("name", "function", "tensors"), HONEST, ids=[h[0] for h in HONEST])
def test_a_thousandth_too_much_is_not(
    name: str, function: Function, tensors: tuple[torch.Tensor, ...]
) -> None:
    made = oracle(function, *tensors)
    found = made.compare(observed(function(*tensors) * 1.001), "fp32", confirm=True)
    assert found.broken
    assert found.excess > 1 or found.rms > 1


def _cut(x: torch.Tensor, bits: int) -> torch.Tensor:
    """Rounded to `bits` significant bits."""
    mantissa, exponent = torch.frexp(x)
    return torch.ldexp(torch.round(mantissa * 2**bits) / 2**bits, exponent)


@pytest.mark.parametrize(("bits", "grade"), [(11, "tf32"), (8, "bf16xfp32")])
def test_cut_operands_are_graded(bits: int, grade: str) -> None:
    a, b = drawn(64, 256), drawn(256, 64, seed=1)
    made = oracle(torch.matmul, a, b)
    assert made.grade(observed(_cut(a, bits) @ _cut(b, bits))) == grade


def test_half_precision_sums_are_graded_as_such() -> None:
    x = drawn(16, 2048, distribution="positive")
    made = oracle(lambda t: t.sum(-1), x)
    total = torch.zeros(16, dtype=torch.bfloat16)
    for column in x.bfloat16().unbind(1):
        total = total + column
    assert made.grade(observed(total.float())) in ("bf16xbf16", "fp16xfp16", "none")


def test_nan_must_stand_where_it_stands() -> None:
    x = drawn(4, 9)
    x[2, 3] = float("nan")
    made = oracle(torch.relu, x)
    dropped = torch.nan_to_num(torch.relu(x))
    found = made.compare(observed(dropped), "fp32")
    assert found.outcome == "class"
    assert found.index == (2, 3)
    assert found.exact


MASK = torch.tensor([[1.0, 0.0, 1.0]])
LOWER = torch.ones(4, 4).tril()
PRODUCTS: list[tuple[str, Function, tuple[torch.Tensor, ...], torch.Tensor]] = [
    (
        "masked sum",
        lambda x: (x * MASK).cumsum(-1),
        (torch.tensor([[1.0, float("inf"), float("inf")]]),),
        torch.tensor([[1.0, 1.0, float("inf")]]),
    ),
    (
        "triangle",
        lambda x: torch.matmul(LOWER, x),
        (torch.tensor([[1.0], [2.0], [3.0], [float("inf")]]),),
        torch.tensor([[1.0], [3.0], [6.0], [float("inf")]]),
    ),
    (
        "convolution",
        lambda x: F.conv1d(x, torch.tensor([[[1.0, 0.0]]])),
        (torch.tensor([[[1.0, float("-inf"), 3.0]]]),),
        torch.tensor([[[1.0, float("-inf")]]]),
    ),
]


@pytest.mark.parametrize(("name", "function", "x", "skipped"), PRODUCTS, ids=lambda v: str(v)[:9])
def test_zero_times_infinity_may_be_skipped(
    name: str, function: Function, x: tuple[torch.Tensor, ...], skipped: torch.Tensor
) -> None:
    made = oracle(function, *x)
    assert made.compare(observed(function(*x)), "fp32").ok
    assert not made.compare(observed(skipped), "fp32").broken
    # What does not hang on it still counts.
    wrong = skipped.clone()
    wrong.view(-1)[0 if name != "convolution" else 1] = float(
        "nan" if name != "convolution" else "inf"
    )
    assert made.compare(observed(wrong), "fp32").outcome in ("class", "undecided")


def test_gates_of_infinite_values_are_decided() -> None:
    x = drawn(4, 9)
    x[1, 2] = float("inf")
    # On some processors torch's own float32 GELU of infinity is NaN: nothing is owed there.
    functions = [f for f in (F.gelu, F.silu, F.hardswish, F.mish) if f(x)[1, 2] == float("inf")]
    assert len(functions) >= 3
    for function in functions:
        made = oracle(function, x)
        assert made.compare(observed(function(x) + 0.0), "fp32").ok
        dropped = torch.nan_to_num(function(x), posinf=0.0)
        assert made.compare(observed(dropped), "fp32").broken


def test_a_linear_piece_may_be_written_either_way() -> None:
    x = drawn(64, 64, distribution="normal-3")
    made = oracle(F.hardsigmoid, x)
    assert made.compare(observed((x / 6 + 0.5).clamp(0, 1)), "fp32").ok
    assert made.compare(observed((x + 3).clamp(0, 6) / 6), "fp32").ok


def test_infinities_that_meet_are_not_forgiven() -> None:
    x = torch.tensor([[1.0, float("inf"), float("-inf"), 0.0]] * 16)
    x[1:] = 1.0
    made = oracle(lambda t: t.sum(-1), x)
    assert made.compare(observed(torch.nan_to_num(x.sum(-1))), "fp32").outcome == "class"
    product = oracle(torch.matmul, x, torch.ones(4, 3))
    assert (
        product.compare(observed(torch.nan_to_num(x @ torch.ones(4, 3))), "fp32").outcome == "class"
    )


def test_a_shape_or_a_dtype_is_metadata() -> None:
    made = oracle(torch.relu, drawn(4, 9))
    assert made.compare(observed(torch.zeros(4, 8)), "fp32").outcome == "metadata"
    assert made.compare(observed(torch.zeros(4, 9).double()), "fp32").outcome == "metadata"


def test_indices_are_exact_but_not_across_a_tie_that_rounding_makes() -> None:
    x = torch.tensor([[1.0, 3.0, 3.0, 2.0]])
    made = oracle(lambda t: t.argmax(-1), x)
    assert made.compare(observed(torch.tensor([2])), "fp32").broken
    near = torch.tensor([[1.0, 3.0, 3.0 - 2**-22, 2.0]])
    blurred = oracle(lambda t: torch.exp(t).argmax(-1), near)
    assert not blurred.compare(observed(torch.tensor([2])), "fp32").broken


def test_exact_sums_are_asked_only_where_something_is_added_up() -> None:
    x = torch.tensor([[1.0, 4097.0, 4097.0, 2.0]])
    assert oracle(lambda t: t.argmax(-1), x).compare_exact(observed(torch.tensor([2]))) is None
    assert oracle(lambda t: t.mul(3).sort(-1).values, x).compare_exact(observed(x)) is None
    index, none = torch.tensor([0, 0, 1, 1]), torch.zeros(1, 4)

    def looped(t: torch.Tensor) -> torch.Tensor:
        total = torch.zeros(1)
        for column in t.unbind(-1):
            total = total + column
        return total

    sums: list[Function] = [
        lambda t: t.cumsum(-1),
        lambda t: none.to(t).scatter_add(1, index[None], t),
        lambda t: none.to(t).index_add(1, index, t),
        lambda t: none.to(t).index_put((torch.tensor([0]), index[None]), t, accumulate=True),
        lambda t: t @ torch.ones(4, 1).to(t),
        looped,
    ]
    for function in sums:
        found = oracle(function, x).compare_exact(observed(function(x).half().float()))
        assert found is not None
        assert found.broken


@pytest.mark.parametrize(
    "chosen",
    [
        lambda y: y.argmax(-1),
        lambda y: y.sort(-1, descending=True).indices,
        lambda y: y.argmax(-1).float() + y.amax(-1),
    ],
    ids=["argmax", "sort", "index and value"],
)
def test_which_of_equal_sums_is_named_is_no_matter_of_sums(chosen: Function) -> None:
    a = torch.randint(-4000, 4000, (256, 32), generator=torch.Generator().manual_seed(0)).float()
    b = torch.randint(-8, 8, (32, 4), generator=torch.Generator().manual_seed(1)).float()
    b[:, 3] = b[:, 1]
    b[:, 2] = b[:, 0]
    b[0, 2] += 1

    def last(y: torch.Tensor) -> torch.Tensor:
        """Of equal columns the other one."""
        order = [0, 3, 2, 1]
        named = chosen(y[:, order])
        if named.is_floating_point():
            named, top = named - y.amax(-1), y.amax(-1)
            return torch.tensor(order)[named.long()].float() + top
        return torch.tensor(order)[named]

    made = oracle(lambda a, b: chosen(a @ b), a, b)
    assert made.owed[0].all()
    otherwise = last(a @ b)
    assert (otherwise != chosen(a @ b)).any()
    found = made.compare_exact(observed(otherwise))
    assert found is not None
    assert found.ok, found
    # A sum that lost its lower bits names another column, where no two are equal.
    lost = chosen(_cut(a @ b, 4))
    found = made.compare_exact(observed(lost))
    assert found is not None
    assert found.broken


def test_a_sum_in_the_memory_of_a_half_precision_result_is_owed_where_every_order_is_exact() -> (
    None
):
    index = torch.zeros(3, dtype=torch.long)
    # 256 + 1 - 1: a bfloat16 holds the sum, and 256 + 1 it does not. In this order torch meets it.
    terms = torch.tensor([1.0, -1.0, 256.0]).bfloat16()
    few = torch.tensor([1.0, -1.0, 128.0]).bfloat16()

    def added(t: torch.Tensor) -> torch.Tensor:
        return torch.zeros(1, dtype=t.dtype).index_add(0, index, t)

    assert not oracle(added, terms).owed[0].any()
    assert oracle(added, few).owed[0].all()


def test_the_required_regime_follows_the_reference() -> None:
    def of(function: Function, *tensors: torch.Tensor) -> str:
        return oracle(function, *tensors).required

    assert of(torch.matmul, drawn(3, 4), drawn(4, 3)) == "fp32"
    assert of(F.conv1d, drawn(1, 2, 9), drawn(2, 2, 3)) == "tf32"
    assert of(torch.matmul, drawn(3, 4).half(), drawn(4, 3).half()) == "fp16xfp32"


def test_regimes_are_ordered_and_looked_up() -> None:
    assert REGIMES[0] == "fp32"
    with pytest.raises(ValueError, match="fp33"):
        regime("fp33")


@pytest.mark.parametrize("degrees", [4, 8, 32, 128])
@pytest.mark.parametrize("tail", [1e-3, 1e-6, 1e-12])
def test_quantiles_agree_with_arbitrary_precision(degrees: int, tail: float) -> None:
    t = mp.mpf(student_quantile(tail, degrees))
    x = degrees / (degrees + t * t)
    exact = mp.betainc(mp.mpf(degrees) / 2, mp.mpf(1) / 2, 0, x, regularized=True) / 2
    assert abs(exact / tail - 1) < 1e-6
    assert abs(student_tail(float(t), degrees) / tail - 1) < 1e-6


def test_more_runs_and_fewer_elements_make_the_bound_tighter() -> None:
    assert element_multiple(128, 1000) < element_multiple(32, 1000) < element_multiple(4, 1000)
    assert element_multiple(32, 1) < element_multiple(32, 1 << 20)


def test_the_sign_of_zero_counts_where_no_sum_decides_it() -> None:
    x = torch.tensor([-0.0, 1.0, -2.0])
    product = oracle(lambda x: x * 0.5, x)
    assert product.compare(observed(x * 0.5), "fp32").ok
    found = product.compare(observed((x * 0.5).abs() * x.sign()), "fp32")
    assert (found.outcome, found.expected, found.got) == ("class", "-0", "0")
    total = oracle(lambda x: x * 0.5 + x, x)
    assert total.compare(observed((x * 1.5).abs() * x.sign()), "fp32").ok


def test_an_exponential_by_powers_of_two_is_honest() -> None:
    x = torch.linspace(-85, 85, 512)
    powers = torch.exp2(x * torch.tensor(1.4426950408889634))
    assert oracle(torch.exp, x).compare(observed(powers), "fp32").ok
    assert oracle(torch.exp, x).compare(observed(powers * (1 + 2**-16)), "fp32").broken


@pytest.mark.parametrize("scale", [1e-2, 1e-4])
def test_an_epsilon_left_to_the_dtype_is_the_native_ones(scale: float) -> None:
    x = drawn(8, 64) * scale
    made = oracle(torch.nn.RMSNorm(64).forward, x)
    assert np.abs(made.exact[0].data - made.native[0].data).max() < 1e-6
