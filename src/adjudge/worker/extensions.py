"""CUDA C++ that candidates build with torch's `load_inline`, built in less than half the time.

Nearly all of a build is compilers reading torch's headers. Builds find a shorter `torch/extension.h`
first; one that fails with it is made again with torch's own, and only what that says counts.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

HEADERS = Path(__file__).parent / "headers"
#: Folders that compilers search before those of the system's, and of torch's, headers.
_SEARCHED = "CPATH"


def hasten() -> None:
    """Has torch's builds in this process find our header first. Does nothing the second time."""
    from torch.utils import cpp_extension

    shipped = cpp_extension._run_ninja_build
    if getattr(shipped, "hastened", False):
        return

    def build(*args: Any, **kwargs: Any) -> None:
        with contextlib.suppress(RuntimeError), _found_first(HEADERS):
            shipped(*args, **kwargs)
            return
        shipped(*args, **kwargs)

    build.hastened = True  # type: ignore[attr-defined]
    cpp_extension._run_ninja_build = build


@contextlib.contextmanager
def _found_first(folder: Path) -> Iterator[None]:
    before = os.environ.get(_SEARCHED)
    os.environ[_SEARCHED] = os.pathsep.join(filter(None, (str(folder), before)))
    try:
        yield
    finally:
        if before is None:
            del os.environ[_SEARCHED]
        else:
            os.environ[_SEARCHED] = before
