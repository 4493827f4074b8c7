"""The draw of kernels from a corpus."""

from __future__ import annotations

import gzip
import json
import sys
from collections import Counter
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "benchmarks"))

import corpus


def test_every_beginning_of_a_draw_is_a_fair_part_of_all_levels(tmp_path: Path) -> None:
    path = tmp_path / "kernels.jsonl.gz"
    with gzip.open(path, "wt", encoding="utf-8") as lines:
        for level, problems in ((1, 30), (2, 15), (3, 5)):
            for number in range(problems):
                for sha in ("b", "a"):
                    row = {"problem": f"{level}/{number}", "level": level, "accepted": True}
                    lines.write(json.dumps({**row, "sha": f"{sha}{number:02d}"}) + "\n")
    drawn = corpus.stratified(path, 40)
    assert Counter(row["level"] for row in drawn[:10]) == {1: 6, 2: 3, 3: 1}
    assert Counter(row["level"] for row in drawn) == {1: 24, 2: 12, 3: 4}
    assert all(row["sha"].startswith("a") for row in drawn)
