"""What verdicts on a GPU cost, beside the field's usual test of the same kernels in the same run.

    python benchmarks/audit_speed.py --corpus FILE.jsonl.gz [--count 200] [--alone 20] [--out FILE]

One accepted kernel a problem, in the order of their shas. The first `--alone` ones are judged one at a
time, each over several lanes, and are given the usual test in a fresh process each; then `--count` go
through a pool. Prints medians, kernels a second and the ratio.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import corpus

from adjudge.errors import UsageError
from adjudge.frontends import kernelbench
from adjudge.judge.pool import Pool
from adjudge.judge.verify import Options, verify
from adjudge.worker.client import Zygote

USUAL = Path(__file__).resolve().parent / "usual_test.py"
#: Seconds after which the usual test is given up.
PATIENCE = 300.0


@dataclass(frozen=True)
class Job:
    row: corpus.Row
    budget: float
    lanes: int


def line_of(job: Job, zygote: Zygote) -> dict[str, Any]:
    """The record of one verdict; its seconds begin with the sources and end with the verdict."""
    start = time.perf_counter()
    line: dict[str, Any] = {"problem": job.row["problem"], "sha": job.row["sha"]}
    try:
        program, candidate = kernelbench.from_source(
            job.row["reference"], job.row["candidate"], job.row["problem"]
        )
        options = Options(
            zygote=zygote, runner="cuda", budget=job.budget, examine=False, lanes=job.lanes
        )
        verdict = verify(program, candidate, options)
    except UsageError as error:
        return line | {"fault": f"not judged: {error}"}
    except Exception as error:
        return line | {"fault": f"{type(error).__name__}: {error}"}
    seconds = time.perf_counter() - start
    return line | {
        "standing": verdict.standing.value,
        "seconds": round(seconds, 3),
        "probes": verdict.probes,
        "violations": {
            f.gate: [f.scope.value, f.violation.message, f.violation.replay]
            for f in verdict.findings
            if f.violation is not None
        },
        "timings": {name: round(s, 3) for name, s in verdict.timings if s >= 0.05},
    }


def usual_seconds(row: corpus.Row) -> tuple[float, str]:
    """Seconds and answer of the usual test, process start and compilation included."""
    text = json.dumps({name: row[name] for name in ("reference", "candidate")})
    with tempfile.TemporaryDirectory() as cache:
        fresh = {"TRITON_CACHE_DIR": cache, "TORCH_EXTENSIONS_DIR": cache}
        start = time.perf_counter()
        try:
            done = subprocess.run(
                [sys.executable, str(USUAL)], input=text, capture_output=True, text=True,
                timeout=PATIENCE, check=False, env={**os.environ, **fresh},
            )  # fmt: skip
            answer = done.stdout.strip() or "raised"
        except subprocess.TimeoutExpired:
            answer = "no answer"
        return time.perf_counter() - start, answer


def verdicts(
    rows: Sequence[corpus.Row], judges: int, lanes: int, budget: float, out: Path | None
) -> tuple[Any, ...]:
    """The lines, wall-clock seconds of all, and how many judges there were."""
    lines = []
    with Pool(judges=judges, lanes=lanes, runner="cuda") as pool:
        start = time.perf_counter()
        for line in pool.answers(line_of, [Job(row, budget, lanes) for row in rows]):
            lines.append(line)
            if out is not None:
                # At once: a run that is cut off has told what it has.
                with out.open("a") as stream:
                    stream.write(json.dumps({"lanes": lanes, **line}) + "\n")
        return lines, time.perf_counter() - start, pool.judges


def summary(lines: list[dict[str, Any]]) -> str:
    seconds = sorted(line["seconds"] for line in lines if "seconds" in line)
    if not seconds:
        return "no verdict"
    median, ninth = statistics.median(seconds), seconds[int(0.9 * (len(seconds) - 1))]
    standings = Counter(line.get("standing", "fault") for line in lines)
    words = ", ".join(f"{n} {name}" for name, n in sorted(standings.items()))
    return f"median {median:.2f} s, 90% within {ninth:.2f} s; {words}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--corpus", type=Path, required=True)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--count", type=int, default=200, help="kernels through the pool")
    parser.add_argument("--alone", type=int, default=20, help="kernels one at a time")
    parser.add_argument("--usual", type=int, default=10, help="of these, given the usual test")
    parser.add_argument("--judges", type=int, default=max(1, (os.cpu_count() or 2) // 2))
    parser.add_argument("--lanes", type=int, default=4, help="of a kernel that is judged alone")
    parser.add_argument("--budget", type=float, default=30.0, help="seconds of probes a verdict")
    options = parser.parse_args()
    rows = corpus.first_accepted(options.corpus, max(options.count, options.alone))
    usual = [usual_seconds(row) for row in rows[: options.usual]]
    kept: list[dict[str, Any]] = []
    if usual:
        theirs = statistics.median(seconds for seconds, _ in usual)
        print(f"usual test, alone     {len(usual):4d} kernels, median {theirs:.2f} s", flush=True)
    if options.alone:
        lines, _, _ = verdicts(rows[: options.alone], 1, options.lanes, options.budget, options.out)
        kept += lines
        print(f"verdict, alone        {len(lines):4d} kernels, {summary(lines)}", flush=True)
        ours = [line["seconds"] for line in lines if "seconds" in line]
        if usual and ours:
            ratio = statistics.median(ours) / theirs
            print(f"verdict / usual test  {ratio:.2f} (medians)", flush=True)
    if options.count:
        lines, wall, judges = verdicts(
            rows[: options.count], options.judges, 1, options.budget, options.out
        )
        kept += lines
        print(f"pool of {judges:2d} judges    {len(lines):4d} kernels, {summary(lines)}")
        print(f"throughput            {len(lines) / wall:.2f} kernels a second", flush=True)
    for line in kept:
        if "fault" in line:
            print(line["problem"], line["fault"][:300])


if __name__ == "__main__":
    main()
