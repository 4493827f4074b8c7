"""The doctor's proofs hold where the layers do, and fail where they do not."""

from __future__ import annotations

import pytest

from adjudge.worker import sandbox


def test_what_is_restricted_cannot_be_done() -> None:
    layers = sandbox.available(sandbox.Settings())
    broken = [proof for proof in sandbox.prove() if proof.layer in layers and not proof.held]
    assert not broken


@pytest.mark.parametrize(
    "action", [sandbox._writes_outside, sandbox._reads_home, sandbox._connects]
)
def test_without_the_layer_the_attempt_succeeds(
    action: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sandbox, "restrict", lambda settings, folder: None)
    monkeypatch.setattr(sandbox, "enter_namespaces", lambda: False)
    assert sandbox._attempt(action)  # type: ignore[arg-type]
