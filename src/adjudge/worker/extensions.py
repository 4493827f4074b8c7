"""CUDA C++ that candidates build with torch's `load_inline`, built in a third of the time.

Nearly all of a build is compilers reading torch's headers. Builds find shorter ones first, the shortest
where a text calls nothing of torch's but what makes tensors; one that fails with them is made again with
torch's own, and only what that says counts.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

HEADERS = Path(__file__).parent / "headers"
#: Without the declarations of torch's operations.
HEADERS_FEW = Path(__file__).parent / "headers_few"
#: What those declare, or what declares itself where it is included.
_DECLARED = frozenset(
    "Tensor TensorOptions ScalarType Dtype Device IntArrayRef optional nullopt dtype device "
    "kByte kChar kShort kInt kLong kHalf kBFloat16 kFloat kDouble kBool kUInt8 kInt8 kInt16 kInt32 "
    "kInt64 kFloat16 kFloat32 kFloat64 kCUDA kCPU kStrided Half BFloat16 cuda PackedTensorAccessor32 "
    "RestrictPtrTraits PackedTensorAccessor64 DefaultPtrTraits empty empty_like full ones ones_like "
    "zeros zeros_like".split()
)
_NAME = re.compile(r"\b(?:torch|at|c10)::(\w+)")
#: Folders that compilers search before those of the system's, and of torch's, headers.
_SEARCHED = "CPATH"


def headers_for(source: str) -> Path:
    """The folder of the shortest headers with which a candidate's text may be built."""
    # Tensors that need a gradient are made by factories of torch's own.
    few = set(_NAME.findall(source)) <= _DECLARED and "requires_grad" not in source
    return HEADERS_FEW if few else HEADERS


def hasten(source: str) -> None:
    """Has torch's builds in this process find our headers first. Does nothing the second time.

    Args:
        source: of the candidate.
    """
    from torch.utils import cpp_extension

    folder = headers_for(source)

    shipped = cpp_extension._run_ninja_build
    if getattr(shipped, "hastened", False):
        return

    def build(*args: Any, **kwargs: Any) -> None:
        with contextlib.suppress(RuntimeError), _found_first(folder):
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
