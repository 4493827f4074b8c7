"""Each conviction that was read has a script in torch alone that shows the fault, and an index line."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

FOLDER = Path(__file__).resolve().parents[2] / "docs" / "audits" / "first-100"
SCRIPTS = sorted(FOLDER.glob("*.py"))


def test_every_script_shows_its_fault() -> None:
    # One process for all: importing torch is what takes the time.
    source = "import runpy, sys\nfor path in sys.argv[1:]:\n    runpy.run_path(path)"
    done = subprocess.run(
        [sys.executable, "-c", source, *map(str, SCRIPTS)],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-2000:]


def test_no_script_uses_adjudge_and_each_is_in_the_index() -> None:
    assert len(SCRIPTS) >= 20
    index = (FOLDER / "README.md").read_text()
    for path in SCRIPTS:
        assert "adjudge" not in path.read_text()
        assert f"`{path.stem}`" in index
