"""What every worker with a GPU would otherwise pay for itself, done once in the process that it is
forked from: Triton's driver module is built and loaded, its keys are computed, and one kernel is
compiled, so that the first compilation of a worker takes what the tenth one takes.

Nothing of this opens a CUDA context: a context does not survive a fork.
"""

from __future__ import annotations

import os
import tempfile
from typing import Any

import triton
import triton.language as tl

from adjudge.worker import direct_launch


def warm(capability: int) -> None:
    """Prepares Triton in this process.

    Args:
        capability: of the GPU, major and minor in one number: 90 for Hopper.
    """
    before = os.environ.get("TRITON_CACHE_DIR")
    # Its own folder and not the user's: what is loaded here runs in every worker.
    with tempfile.TemporaryDirectory(prefix="adjudge-triton-") as folder:
        os.environ["TRITON_CACHE_DIR"] = folder
        try:
            _set_driver()
            _compile(capability)
        finally:
            os.environ.pop("TRITON_CACHE_DIR")
            if before is not None:
                os.environ["TRITON_CACHE_DIR"] = before


def _set_driver() -> None:
    """Asking Triton which driver is active would start CUDA here."""
    from triton.backends.nvidia.driver import CudaDriver

    driver = CudaDriver()
    driver.launcher_cls = direct_launch.launcher
    triton.runtime.driver.set_active(driver)


def _compile(capability: int) -> None:
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    signature = {"x": "*fp32", "n": "i32", "width": "constexpr"}
    pointer: Any = [["tt.divisibility", 16]]
    source = ASTSource(_negated, signature, {(2,): 128}, {(0,): pointer})
    triton.compile(source, target=GPUTarget("cuda", capability, 32))


@triton.jit  # type: ignore[untyped-decorator]
def _negated(x, n, width: tl.constexpr):  # type: ignore[no-untyped-def]
    i = tl.program_id(0) * width + tl.arange(0, width)
    tl.store(x + i, -tl.load(x + i, i < n), i < n)
