"""Verdicts on a GPU of kernels that a record has judged in the interpreter, under the record's gates.

    python benchmarks/agreement.py --corpus FILE.jsonl.gz --out docs/audits/agreement/cuda.jsonl \\
        --runner cuda --jobs 11
    python benchmarks/agreement.py --corpus FILE.jsonl.gz --out docs/audits/agreement/interpret.jsonl \\
        --differing docs/audits/agreement/cuda.jsonl

The second form judges those again in the interpreter, under the present gates, of which the two disagree
on an outcome. Both resume. docs/audits/agreement_page.py makes the page.
"""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import audit_first
import corpus
import farm

from adjudge.judge.digest import gates_digest

AUDITS = Path(__file__).resolve().parents[1] / "docs" / "audits"
sys.path.insert(0, str(AUDITS))
from agreement_page import differing

Line = dict[str, Any]


@dataclass(frozen=True)
class Job:
    row: corpus.Row
    budget: float
    runner: str
    gates: tuple[str, ...]


def line_of(job: Job) -> Line:
    """The record of one job, in a process of the farm."""
    row = job.row
    try:
        line = audit_first.judge(row, farm.zygote(), job.budget, job.runner, job.gates)
    except Exception as error:
        words = f"{type(error).__name__}: {error}"
        line = {"problem": row["problem"], "sha": row["sha"], "gates": gates_digest()}
        line["fault"] = words
    return line | {"runner": job.runner}


def lines_of(path: Path) -> list[Line]:
    if not path.exists():
        return []
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--corpus", type=Path, required=True)
    parser.add_argument("--record", type=Path, default=AUDITS / "first-100" / "audit.jsonl")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--differing", type=Path, help="record of another runner to disagree with")
    parser.add_argument("--runner", default="interpret", choices=("interpret", "cuda"))
    parser.add_argument("--budget", type=float, default=25.0, help="seconds of probes a verdict")
    parser.add_argument("--jobs", type=int, default=1, help="processes")
    options = parser.parse_args()
    record = lines_of(options.record)
    wanted = {line["sha"] for line in record}
    if options.differing is not None:
        wanted &= {one.sha for one in differing(record, lines_of(options.differing))}
    gates = tuple(record[0]["findings"])
    done = {line["sha"] for line in lines_of(options.out) if line["gates"] == gates_digest()}
    jobs = [
        Job(row, options.budget, options.runner, gates)
        for row in corpus.rows(options.corpus)
        if row["sha"] in wanted - done
    ]
    jobs.sort(key=lambda job: job.row["sha"])
    for line in farm.answers(line_of, jobs, options.jobs, runner=options.runner):
        with options.out.open("a", encoding="utf-8") as sink:
            sink.write(json.dumps(line) + "\n")
        convicted = [v["gate"] for v in line.get("violations", [])]
        print(line["problem"], line.get("standing", line.get("fault")), convicted, flush=True)


if __name__ == "__main__":
    main()
