"""The audit of a hundred accepted kernels: its record, and the convictions that were read; and twenty of
a GPU's verdicts.

Each of those has a script in torch alone that shows the fault, and an index line.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from adjudge.judge.digest import gates_digest

FOLDER = Path(__file__).resolve().parents[2] / "docs" / "audits" / "first-100"
GPU = FOLDER.parent / "gpu-20"
SCRIPTS, ON_A_GPU = sorted(FOLDER.glob("*.py")), sorted(GPU.glob("*.py"))
CORE = ("wrong-value", "shape-dependent", "drops-nonfinite", "stale-output")
DECIDED = ("pass", "violation", "refusal")
KERNELS, ENOUGH, READ = 100, 85, 20


@pytest.fixture(scope="module")
def record() -> list[dict[str, Any]]:
    return [json.loads(line) for line in (FOLDER / "audit.jsonl").read_text().splitlines()]


def test_the_record_is_whole_and_owns_to_its_age(record: list[dict[str, Any]]) -> None:
    assert len({line["sha"] for line in record}) == KERNELS
    (made,) = {line["gates"] for line in record}
    assert made == gates_digest() or f"`{made[:8]}`" in (FOLDER.parent / "README.md").read_text()
    decided = [line for line in record if all(line["findings"][gate] in DECIDED for gate in CORE)]
    assert len(decided) >= ENOUGH


def test_the_first_convictions_were_read(record: list[dict[str, Any]]) -> None:
    convicted = sorted(line["sha"] for line in record if line["violations"])
    read = {path.name.partition("_")[0] for path in SCRIPTS}
    assert {sha[:12] for sha in convicted[:READ]} <= read


def test_every_script_shows_its_fault() -> None:
    # One process for all: importing torch is what takes the time.
    source = "import runpy, sys\nfor path in sys.argv[1:]:\n    runpy.run_path(path)"
    done = subprocess.run(
        [sys.executable, "-c", source, *map(str, [*SCRIPTS, *ON_A_GPU])],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-2000:]


def test_no_script_uses_adjudge_and_each_is_in_the_index() -> None:
    assert len(SCRIPTS) >= 20
    for folder, scripts in ((FOLDER, SCRIPTS), (GPU, ON_A_GPU)):
        index = (folder / "README.md").read_text()
        for path in scripts:
            assert "adjudge" not in path.read_text()
            assert f"`{path.stem}`" in index


def test_each_conviction_of_the_gpu_was_read_and_has_its_script() -> None:
    lines = [json.loads(line) for line in (GPU / "convictions.jsonl").read_text().splitlines()]
    assert len({(line["sha"], line["gate"]) for line in lines}) == 20
    scripts = {path.name.partition("_")[0] for path in (*SCRIPTS, *ON_A_GPU)}
    index = (GPU / "README.md").read_text()
    for line in lines:
        sha = line["sha"][:12]
        assert sha in scripts
        assert f"**`{sha}`, {line['gate']}.**" in index
