"""A digest of everything that decides: records made under other gates are known to be stale."""

from __future__ import annotations

import hashlib
from functools import cache
from importlib import resources

_PACKAGES = ("gates", "oracle", "inputs")


@cache
def gates_digest() -> str:
    """SHA-256 over the sources of the gates, the oracle and the inputs."""
    state = hashlib.sha256()
    for package in _PACKAGES:
        root = resources.files("adjudge") / package
        for entry in sorted(root.iterdir(), key=lambda item: item.name):
            if entry.name.endswith(".py"):
                state.update(entry.name.encode())
                state.update(entry.read_bytes())
    return state.hexdigest()
