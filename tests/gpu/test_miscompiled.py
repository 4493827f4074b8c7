"""A backward pass that a compiler breaks, in a library that knows of it, and one that is right."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest

from adjudge.worker.client import Zygote

pytestmark = pytest.mark.gpu

SCRIPT = Path(__file__).resolve().parents[2] / "benchmarks" / "fla_backward.py"


@pytest.mark.skipif(
    importlib.util.find_spec("fla") is None, reason="needs flash-linear-attention (fla-core)"
)
def test_the_miscompiled_backward_pass_is_convicted_and_the_control_is_not(gpu: Zygote) -> None:
    if "H" not in gpu.model.partition("NVIDIA ")[2][:1]:
        pytest.skip("the compiler's fault shows on Hopper")
    done = subprocess.run(
        [sys.executable, str(SCRIPT)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
