"""The same recipe gives the same bytes, within what the author's own draws allow."""

from __future__ import annotations

import hashlib

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from adjudge.inputs import layouts
from adjudge.inputs.covering import cover
from adjudge.inputs.levels import ALL_DISTRIBUTIONS, LAYOUTS, SPECIALS
from adjudge.inputs.philox import Stream, philox
from adjudge.inputs.sampler import Sampler
from adjudge.inputs.specials import with_special
from adjudge.program import Arguments


def test_philox_gives_the_published_words() -> None:
    """Random123's known answers for philox4x32-10 (Salmon et al. 2011, kat_vectors)."""
    cases = [
        ((0, 0, 0, 0), (0, 0), (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)),
        ((0xFFFFFFFF,) * 4, (0xFFFFFFFF,) * 2, (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD)),
        (
            (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344),
            (0xA4093822, 0x299F31D0),
            (0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1),
        ),
    ]
    for counter, key, expected in cases:
        words = philox(tuple(np.array([c], dtype=np.uint32) for c in counter), key)
        assert tuple(int(w[0]) for w in words) == expected


def test_bytes_never_change() -> None:
    """A digest over every distribution: a change here makes every stored recipe lie."""
    state = hashlib.sha256()
    for name in ALL_DISTRIBUTIONS:
        sampler = Sampler(7, name)
        state.update(sampler.floats((5, 13), "normal").tobytes())
        state.update(sampler.floats((65,), "uniform").tobytes())
        state.update(sampler.integers(2, 19, (40,)).tobytes())
    assert state.hexdigest() == DIGEST


DIGEST = "55077bd4bb60dcddac90a30b44db6b8f5c700611e87c46490a40c95ad9c6f40f"


@given(
    st.sampled_from(ALL_DISTRIBUTIONS), st.integers(0, 2**32), st.integers(0, 9), st.integers(0, 9)
)
def test_integers_stay_in_the_authors_range(name: str, seed: int, low: int, span: int) -> None:
    drawn = Sampler(seed, name).integers(low, low + span + 1, (64,))
    assert ((drawn >= low) & (drawn <= low + span)).all()


@given(st.sampled_from(ALL_DISTRIBUTIONS), st.integers(0, 2**32))
@settings(max_examples=30)
def test_draws_are_finite_and_repeat(name: str, seed: int) -> None:
    one, other = (Sampler(seed, name).floats((7, 33), "normal") for _ in range(2))
    assert np.isfinite(one).all()
    assert one.tobytes() == other.tobytes()


def test_normal_and_uniform_have_their_moments() -> None:
    normal = Sampler(0).floats((200_000,), "normal")
    uniform = Sampler(1).floats((200_000,), "uniform")
    # Five standard errors of the mean and of the variance.
    assert abs(normal.mean()) < 5 / np.sqrt(normal.size)
    assert abs(normal.var() - 1) < 5 * np.sqrt(2 / normal.size)
    assert abs(uniform.mean() - 0.5) < 5 * np.sqrt(1 / 12 / uniform.size)
    assert uniform.min() >= 0
    assert uniform.max() < 1


def test_the_authors_structure_survives_a_distribution() -> None:
    with Sampler(3, "normal-1000").patched():
        weights = torch.softmax(torch.randn(4, 8), dim=1)
        labels = torch.randint(0, 5, (6,))
    assert torch.allclose(weights.sum(1), torch.ones(4))
    assert labels.min() >= 0
    assert labels.max() < 5


@given(
    st.sampled_from(LAYOUTS),
    st.lists(st.integers(1, 6), min_size=1, max_size=4).map(tuple),
    st.integers(0, 5),
)
def test_layouts_keep_the_values(name: str, shape: tuple[int, ...], seed: int) -> None:
    plan = layouts.plan(shape, 4, name, 0, False, seed)
    if plan is None or plan.sparse:  # a sparse storage is virtual
        return
    values = np.arange(np.prod(shape), dtype=np.float32).reshape(shape)
    tied = layouts.tie(values, plan) if name in ("expanded", "overlapping") else values
    storage = np.full(plan.storage_elements, -1, dtype=np.float32)
    view = np.lib.stride_tricks.as_strided(
        storage[plan.offset :], shape, tuple(s * 4 for s in plan.strides)
    )
    view[...] = tied
    assert np.array_equal(view, tied)


def _two(sampler: Sampler) -> Arguments:
    """An upper triangular matrix and probabilities."""
    with sampler.patched():
        return Arguments(args=(torch.triu(torch.rand(6, 6)), torch.rand(4, 8).softmax(-1)))


def _one(sampler: Sampler) -> Arguments:
    with sampler.patched():
        return Arguments(args=(torch.randn(4, 8), torch.randint(0, 2, (4,)).float()))


@pytest.mark.parametrize("name", [n for n in SPECIALS if n != "none"])
def test_a_special_value_is_placed_in_one_place(name: str) -> None:
    plain = _one(Sampler(5))
    changed = with_special(_one, name, 5, "declared")
    assert changed is not None
    assert torch.equal(changed.args[1], plain.args[1])
    differs = (changed.args[0] != plain.args[0]) | (
        changed.args[0].signbit() != plain.args[0].signbit()
    )
    rows = differs.any(1)
    assert int(rows.sum()) == 1
    if not name.endswith("@row"):
        assert int(differs.sum()) == 1


@pytest.mark.parametrize("name", [n for n in SPECIALS if n != "none"])
@pytest.mark.parametrize("seed", range(4))
def test_a_special_value_leaves_the_authors_structure(name: str, seed: int) -> None:
    changed = with_special(_two, name, seed, "declared")
    if changed is None:
        return
    triangular, probabilities = changed.args
    assert not triangular.tril(-1).any()
    assert not torch.isinf(probabilities).any()


def test_inputs_without_draws_are_written_to() -> None:
    x = torch.arange(12.0).reshape(3, 4)
    changed = with_special(lambda _: Arguments(args=(x.clone(),)), "nan@last", 0, "declared")
    assert changed is not None
    assert bool(changed.args[0][2, 3].isnan())
    assert int(changed.args[0].isnan().sum()) == 1


def test_nothing_is_written_to_labels() -> None:
    def labels(sampler: Sampler) -> Arguments:
        with sampler.patched():
            return Arguments(args=(torch.randn(8).sign(),))

    assert with_special(labels, "nan@any", 0, "declared") is None


@given(st.lists(st.integers(2, 4), min_size=2, max_size=6))
@settings(max_examples=25, deadline=None)
def test_every_pair_of_levels_meets(counts: list[int]) -> None:
    factors = {f"f{i}": tuple(range(n)) for i, n in enumerate(counts)}
    rows = cover(factors, strength=2, seed=0)
    for a in factors:
        for b in factors:
            if a < b:
                pairs = {(row[a], row[b]) for row in rows}
                assert len(pairs) == len(factors[a]) * len(factors[b])


def test_streams_do_not_overlap() -> None:
    one, other = Stream(5, 0), Stream(5, 1)
    assert not np.array_equal(one.words(64), other.words(64))
