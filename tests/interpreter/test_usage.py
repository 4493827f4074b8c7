"""The record has what the kernels of the corpora use."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from adjudge.static.source import Source

HERE = Path(__file__).parent

#: Why an operation that kernels use has no record.
NOT_RECORDED = {
    **dict.fromkeys(("range", "tl.range", "tl.static_range"), "control flow: what it runs is recorded"),
    **dict.fromkeys(("**", "is not", "tl.constexpr"), "of Python's values only"),
    "tl.debug_barrier": "has no value",
    "unreadable": "counts the files that are no Python",
}  # fmt: skip
#: Triton has none of these: such kernels compile nowhere.
NOT_IN_TRITON = frozenset(
    {
        "tl.barrier", "tl.dot trans_b=", "tl.inf", "tl.libdevice.sigmoid", "tl.libdevice.tanh",
        "tl.load dtype=", "tl.softplus", "tl.tanh",
    }
)  # fmt: skip


@pytest.fixture(autouse=True)
def _neighbours(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("triton")
    monkeypatch.syspath_prepend(HERE)


@pytest.fixture
def recorded() -> set[str]:
    from operations import module_text, operations
    from usage import used

    return used(Source(module_text(list(operations()))))


def test_every_operation_that_two_kernels_use_is_recorded_or_has_a_reason(
    recorded: set[str],
) -> None:
    often = set(json.loads((HERE / "usage.json").read_text()))
    assert often - recorded - NOT_IN_TRITON == set(NOT_RECORDED)


def test_what_is_said_to_be_missing_in_triton_is_missing() -> None:
    import inspect

    import triton.language as tl

    for name in NOT_IN_TRITON:
        path, _, keyword = name.removeprefix("tl.").partition(" ")
        first = path.split(".")[0]
        if keyword:
            assert keyword.rstrip("=") not in inspect.signature(getattr(tl, first)).parameters
        else:
            assert not hasattr(tl, first)
            assert not hasattr(tl.math, first)


def test_operations_are_counted_by_the_names_in_the_text() -> None:
    from usage import used

    text = (
        "import triton\nimport triton.language as tl\nfrom triton.language.extra import libdevice\n"
        "@triton.jit\ndef k(a):\n    x = tl.sum(tl.load(a), axis=0) + libdevice.tanh(tl.math.exp(1.0))\n"
        "    y = -x if x > 1 and x.to(tl.int32) else min(x, 2)\n"
        "def host(a):\n    return a / 2\n"
    )
    assert used(Source(text)) == {
        "tl.sum", "tl.sum axis=", "tl.load", "libdevice.tanh", "tl.exp", "+", "-x", ">", "and", ".to",
        "min",
    }  # fmt: skip
