"""Programs in a process of their own: the mode of triton is settled when it is imported."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest


@pytest.fixture
def interpreted(tmp_path: Path) -> Callable[[str], None]:
    """Runs the text of a program whose kernels are interpreted; fails if it does."""

    def run(text: str) -> None:
        program = tmp_path / "program.py"
        program.write_text(text)
        environment = {**os.environ, "TRITON_INTERPRET": "1"}
        done = subprocess.run(
            [sys.executable, program], env=environment, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr[-2000:]

    return run
