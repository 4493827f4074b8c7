"""Each published class is shown by its pair, judged by the gates of its own contract."""

from __future__ import annotations

import pytest

from adjudge.contracts import classes
from adjudge.worker.client import Zygote

#: What does not hang on the last digits of this machine's libraries.
STABLE = ("signature", "scope", "exact")


@pytest.mark.parametrize("name", classes.CLASSES)
def test_a_class_shows_the_signature_that_was_recorded(name: str, zygote: Zygote) -> None:
    recorded, found = classes.measured()[name], classes.measure(name, zygote)
    assert found is not None
    assert found.gate == recorded.gate
    one, other = dict(found.violating), dict(recorded.violating)
    assert {key: one[key] for key in STABLE} == {key: other[key] for key in STABLE}
