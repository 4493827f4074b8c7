"""Replays every violation of an audit's record, each kernel in a fresh process.

    python benchmarks/replay_audit.py --corpus FILE.jsonl.gz --record audit.jsonl

Prints what does not come back byte for byte, and ends with 1 if anything does not.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import sys
from pathlib import Path
from typing import Any

import corpus

Answer = tuple[str, str, str]


def replayed(job: tuple[corpus.Row, list[dict[str, Any]]]) -> list[Answer]:
    """(problem, gate, what is wrong or "") for each violation of one kernel."""
    from adjudge.frontends import kernelbench
    from adjudge.judge.replay import replay
    from adjudge.judge.verify import Options
    from adjudge.worker.client import Zygote

    row, violations = job
    name = f"{row['problem']}-{row['sha'][:8]}"
    program, candidate = kernelbench.from_source(row["reference"], row["candidate"], name)
    found: list[Answer] = []
    with Zygote.start() as zygote:
        for violation in violations:
            try:
                result = replay(violation["replay"], program, candidate, Options(zygote=zygote))
            except Exception as error:
                words = f"{type(error).__name__}: {error}"
            else:
                words = ", ".join(
                    word
                    for word, wrong in (
                        ("other inputs", result.same_inputs is False),
                        ("other outputs", result.same_outputs is False),
                        ("no violation", result.finding is None),
                    )
                    if wrong
                )
            found.append((row["problem"], violation["gate"], words))
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--corpus", type=Path, required=True)
    parser.add_argument("--record", type=Path, required=True)
    parser.add_argument("--jobs", type=int, default=1, help="processes")
    options = parser.parse_args()
    lines = [json.loads(line) for line in options.record.read_text().splitlines()]
    convicted = {line["sha"]: line["violations"] for line in lines if line.get("violations")}
    rows = {row["sha"]: row for row in corpus.rows(options.corpus)}
    jobs = [(rows[sha], violations) for sha, violations in convicted.items()]
    total, lost = 0, 0
    context = multiprocessing.get_context("spawn")
    with context.Pool(options.jobs, maxtasksperchild=1) as pool:
        for answers in pool.imap_unordered(replayed, jobs, chunksize=1):
            for problem, gate, words in answers:
                total += 1
                if words:
                    lost += 1
                    print(problem, gate, words, flush=True)
    print(f"{total - lost} of {total} violations come back byte for byte")
    return 1 if lost else 0


if __name__ == "__main__":
    sys.exit(main())
