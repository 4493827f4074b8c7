"""Rows in more dimensions of batch, or in fewer: nothing but the shape changes."""

from __future__ import annotations

from itertools import pairwise
from math import prod

from hypothesis import given
from hypothesis import strategies as st

from adjudge.inputs.ranks import at_other_ranks, leading, split
from adjudge.probe import Probe
from adjudge.task import Declared, Symbol, Task, TensorSpec


def task(*shape: int, fixed: bool = False, ranks: tuple[int, ...] = ()) -> Task:
    symbol = Symbol(
        name="rows", native=shape[0], axes=(("args[0]", 0),), init_args=(0,) if fixed else ()
    )
    return Task(
        name="t",
        frontend="kernelbench",
        source="",
        symbols=(symbol,),
        inputs=(TensorSpec(name="args[0]", shape=shape, dtype="float32"),),
        declared=Declared(ranks=ranks),
    )


@given(st.integers(0, 500), st.integers(1, 4))
def test_parts_multiply_to_the_rows(rows: int, parts: int) -> None:
    sizes = split(rows, parts)
    assert len(sizes) == parts
    assert prod(sizes) == rows


@given(st.lists(st.integers(1, 9), min_size=1, max_size=5).map(tuple), st.integers(1, 5))
def test_leading_sizes_are_replaced_by_as_many_elements(shape: tuple[int, ...], rank: int) -> None:
    found = leading(shape, rank)
    if rank == len(shape):
        assert found is None
        return
    assert found is not None
    old, new = found
    assert shape[: len(old)] == old
    assert prod(old) == prod(new)
    assert len(new) + len(shape) - len(old) == rank


def test_every_rank_but_the_tasks_own_is_asked_once_with_parts_told_apart() -> None:
    ordinary = Probe(sizes=(("rows", 4),))
    for shape, others in (((9,), [2, 3, 4]), ((9, 5), [3, 4]), ((9, 5, 5), [2, 4])):
        probes = list(at_other_ranks(task(*shape), ordinary))
        assert [p.rank for p in probes] == others
        for probe in probes:
            assert probe.without(["rank"]).factors == ()
            if probe.rank > len(shape):
                sizes = split(probe.size("rows"), probe.rank - len(shape) + 1)
                assert min(sizes) > 1
                assert all(a != b for a, b in pairwise(sizes))


def test_rows_that_split_well_are_kept_and_fixed_ones_must_do() -> None:
    well = Probe(sizes=(("rows", 24),))
    assert {p.sizes for p in at_other_ranks(task(9, 5), well)} == {well.sizes}
    odd = Probe(sizes=(("rows", 7),))
    assert {p.sizes for p in at_other_ranks(task(9, 5, fixed=True), odd)} == {odd.sizes}


def test_what_a_contract_declares_is_asked_at_the_native_sizes_too() -> None:
    ordinary, native = Probe(sizes=(("rows", 6),)), Probe(sizes=(("rows", 96),))
    probes = list(at_other_ranks(task(96, 5, ranks=(3,)), ordinary, native))
    assert [(p.sizes, p.rank) for p in probes if p.sizes == native.sizes] == [(native.sizes, 3)]
