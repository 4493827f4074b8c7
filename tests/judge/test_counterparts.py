"""Which of a candidate's tensors a parameter of the reference is, where the names differ."""

from __future__ import annotations

from adjudge.judge.scout import counterparts


def row(name: str, digest: str, *shape: int) -> tuple[str, tuple[int, ...], str, str]:
    return name, shape or (4,), "float32", digest


OURS = [row("a.weight", "drawn", 4, 3), row("a.bias", "other"), row("a.gain", "ones")]
VARIED = {"a.weight", "a.bias"}


def test_the_only_tensor_of_the_same_bytes_is_the_one() -> None:
    theirs = [row("bias", "other"), row("matrix", "drawn", 4, 3), row("inverse", "ones")]
    assert counterparts(OURS, theirs, VARIED) == {"a.weight": "matrix", "a.bias": "bias"}


def test_one_value_says_nothing_but_under_its_own_name() -> None:
    theirs = [row("a.gain", "ones"), row("w", "drawn", 4, 3), row("b", "other")]
    assert counterparts(OURS, theirs, VARIED)["a.gain"] == "a.gain"


def test_two_of_the_same_bytes_or_another_shape_are_not_told_apart() -> None:
    theirs = [row("one", "other"), row("two", "other"), row("flat", "drawn", 12)]
    assert counterparts(OURS, theirs, VARIED) == {}


def test_a_changed_copy_takes_every_certainty() -> None:
    theirs = [row("w", "drawn", 4, 3), row("b", "other"), row("transposed", "changed", 3, 4)]
    assert counterparts(OURS, theirs, VARIED) == {}
    assert counterparts(OURS, [*theirs, row("a.bias", "other")], VARIED) == {"a.bias": "a.bias"}
