"""One zygote for the whole session: starting one takes three seconds."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from adjudge.worker.client import Zygote


@pytest.fixture(scope="session")
def zygote() -> Iterator[Zygote]:
    with Zygote.start() as running:
        yield running
