"""Values made so that a narrow running sum loses part of them, and one of enough bits does not."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest
import torch

from adjudge.inputs.philox import Stream
from adjudge.inputs.values import floats

Floats = npt.NDArray[np.float64]


def drawn(shape: tuple[int, ...], distribution: str, number: int = 0) -> Floats:
    return floats(Stream(0, 0), shape, "normal", distribution, number)


def kept(terms: Floats, dtype: torch.dtype, block: int) -> Floats:
    """The sum of each line, rounded to `dtype` once in `block` terms; a line with its large term at the
    end goes backwards, as every other one does."""
    lines = torch.from_numpy(terms).clone()
    lines[1::2] = lines[1::2].flip(-1)
    total = torch.zeros(lines.shape[0], dtype=torch.float64)
    for start in range(0, lines.shape[-1], block):
        total = (total + lines[:, start : start + block].sum(dim=-1)).to(dtype).double()
    return total.numpy()


#: Lines for blocks of 64, of 128 and for single terms, or of 256, of 64 and for single ones.
WEIGHED, SWAMPED = {64: (0, 1), 128: (2, 3), 1: (4, 5)}, {256: (0, 1), 64: (2, 3), 1: (4, 5)}


@pytest.mark.parametrize("features", [1, 24])
@pytest.mark.parametrize(
    ("bits", "dtype"), [(9, torch.bfloat16), (12, torch.bfloat16), (12, torch.float16)]
)
def test_weights_are_lost_one_by_one(bits: int, dtype: torch.dtype, features: int) -> None:
    """Of the scores themselves, and of those that queries and keys make."""
    if features == 1:
        scores = drawn((6, 2048), f"diluted-{bits}-0")
    else:
        queries = drawn((2, 6, features), f"diluted-{bits}-1", 0)
        keys = drawn((2, 2048, features), f"diluted-{bits}-1", 1)
        near = keys[keys > -40]
        assert np.array_equal(near, torch.from_numpy(near).bfloat16().double().numpy())
        scores = queries[0] @ keys[0].T / features**0.5
    weights = np.exp(scores)
    for block, lines in WEIGHED.items():
        assert (kept(weights, dtype, block)[[*lines]] == 1.0).all()
    assert (weights.sum(axis=1) > 1.007).all()
    assert (weights.sum(axis=1) < 1.25).all()


def test_a_sum_of_eleven_bits_holds_the_larger_weights() -> None:
    weights = np.exp(drawn((6, 2048), "diluted-9-0"))
    for block in (1, 64, 128):
        off = kept(weights, torch.float16, block) / weights.sum(axis=1) - 1
        assert np.abs(off).max() < 4 * 2.0**-11


def test_there_are_no_weights_in_the_control() -> None:
    assert (np.exp(drawn((6, 2048), "diluted-4-0")).sum(axis=1) == 1.0).all()


def test_what_is_weighted_is_told_by_the_key() -> None:
    values = drawn((2, 2048, 4), "diluted-12-1", 2)
    assert values[0].sum(axis=0).tolist() == [1.0] * 4
    assert values[0, [0, -1]].tolist() == [[1, 0, 1, 0], [0, 1, 0, 1]]


@pytest.mark.parametrize("shape", [(6, 1 << 15), (6, 1 << 15, 1)])
@pytest.mark.parametrize(
    ("bits", "dtype"), [(9, torch.bfloat16), (12, torch.bfloat16), (12, torch.float16)]
)
def test_squares_are_lost_one_by_one(bits: int, dtype: torch.dtype, shape: tuple[int, ...]) -> None:
    squares = drawn(shape, f"swamped-{bits}").reshape(shape[:2]) ** 2
    for block, lines in SWAMPED.items():
        assert (kept(squares, dtype, block)[[*lines]] == 1024.0).all()
    assert (squares.sum(axis=1) > 1024 * 1.05).all()
    assert (drawn((shape[1],), f"swamped-{bits}", 1) == 1.0).all()


def test_a_sum_of_eleven_bits_holds_the_larger_squares() -> None:
    squares = drawn((6, 1 << 15), "swamped-9") ** 2
    for block in (1, 64, 256):
        assert (kept(squares, torch.float16, block) == squares.sum(axis=1)).all()
