"""The interpreter gives what an H200 gave, but for the differences that are listed."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("triton") is None, reason="triton is not installed"
)


def test_every_difference_from_the_gpu_is_listed() -> None:
    # The mode of triton is settled when it is imported, so the comparison has a process of its own.
    environment = {**os.environ, "TRITON_INTERPRET": "1"}
    done = subprocess.run(
        [sys.executable, HERE / "compare.py"],
        env=environment, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-2000:]
    seen = json.loads(done.stdout)
    listed = json.loads((HERE / "differences.json").read_text())
    assert {op: d.get("classes", 0) for op, d in seen.items() if "classes" in d} == {
        op: d["classes"] for op, d in listed.items() if "classes" in d
    }
    # Last bits of library functions differ between processors, and so do the orders of sums.
    for op, found in seen.items():
        assert found.get("ulps", 0) <= max(2, listed.get(op, {}).get("ulps", 0)), op


def test_no_class_differs_outside_the_named_operations() -> None:
    listed = json.loads((HERE / "differences.json").read_text())
    named = {
        "libdevice.pow float32",  # the least normal number to the power of one, zero on the GPU
        "mul add float32",  # the compiler fuses, so a product that overflows may not
        # Which of equal ones is found where a NaN stands between them: such runs are not judged.
        "reduce argmin float32",
        "dot float16 to float16",  # sums that cancel, kept in float16 by another order
        "dot acc float32",  # the sign of one zero
    }
    assert {op for op, d in listed.items() if "classes" in d} == named
    unsupported = {"atomic min float32", "atomic add bfloat16"}
    assert {op for op, d in listed.items() if "unsupported" in d} == unsupported
