"""Tests that need an NVIDIA GPU. Elsewhere they skip, and say why."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from adjudge.errors import UsageError
from adjudge.worker.client import Zygote
from adjudge.worker.launch import hide_device


@pytest.fixture(scope="session")
def gpu() -> Iterator[Zygote]:
    try:
        running = Zygote.start(runner="cuda")
    except UsageError as error:
        pytest.skip(str(error).splitlines()[0])
    hide_device()
    with running:
        yield running
