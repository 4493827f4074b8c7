"""What is pasted comes back as it was, and what was damaged says so."""

from __future__ import annotations

import contextlib
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adjudge.errors import UsageError
from adjudge.inputs import codec
from adjudge.inputs.levels import (
    COTANGENTS,
    DISTRIBUTIONS,
    FILLS,
    HISTORIES,
    LAYOUTS,
    RANKS,
    SPECIALS,
)
from adjudge.probe import Probe, sizes_of

names = st.text("abcdefgh_", min_size=1, max_size=8)
probes = st.builds(
    Probe,
    sizes=st.dictionaries(names, st.integers(0, 1 << 20), max_size=5).map(sizes_of),
    seed=st.integers(0, 2**64 - 1),
    distribution=st.sampled_from(DISTRIBUTIONS),
    special=st.sampled_from(SPECIALS),
    layout=st.sampled_from(LAYOUTS),
    fill=st.sampled_from(FILLS),
    guard=st.sampled_from(FILLS),
    history=st.lists(st.sampled_from(HISTORIES), max_size=40).map(tuple),
    process=st.integers(0, 3),
    repeat=st.integers(0, 3),
    cotangent=st.sampled_from(COTANGENTS),
    rank=st.sampled_from((0, *RANKS)),
)


@given(probes)
def test_a_probe_survives_its_line(probe: Probe) -> None:
    line = codec.encode(probe)
    assert codec.decode(line) == probe
    assert not any(c in line for c in " '\"$`\\\n")


@given(probes, st.data())
def test_one_changed_character_is_noticed(probe: Probe, data: st.DataObject) -> None:
    line = codec.encode(probe)
    at = data.draw(st.integers(0, len(line) - 1))
    other = data.draw(st.sampled_from("ABCxyz019-_").filter(lambda c: c != line[at]))
    damaged = line[:at] + other + line[at + 1 :]
    with contextlib.suppress(UsageError):
        # The last character's spare bits mean nothing: then the probe must be the same.
        assert codec.decode(damaged) == probe


def test_lines_of_the_first_format_stay_readable() -> None:
    line = (
        "AxWOuwnjaq1bKyCwuyS-qVLKKVsovyUgtUorVUcpJrMwvLVGyUirOyUxOTVHSUSpOBVJWxk"
        "BGZlVqMVBxtFJRfnmxko5JbGwtADO2Ftw"
    )
    written = Probe(sizes=(("rows", 4),), seed=3, layout="sliced", history=("other",))
    assert codec.decode(line) == written


@pytest.mark.parametrize("line", ["", "A", "Z123", "not a recipe", "A!!!!", "A" + "A" * 25_000])
def test_rubbish_is_a_clear_mistake(line: str) -> None:
    with pytest.raises(UsageError, match="recipe"):
        codec.decode(line)


def test_a_rank_is_written_only_where_it_is_another() -> None:
    ordinary = Probe(sizes=(("rows", 6),))
    assert "rank" not in codec.probe_to_mapping(ordinary)
    other = replace(ordinary, rank=3)
    assert codec.probe_to_mapping(other)["rank"] == 3
    assert codec.describe(other) == "rows=6 · rank 3"


def test_a_field_from_the_future_is_named() -> None:
    with pytest.raises(UsageError, match="warp"):
        codec.probe_from_mapping({"warp": 9})
