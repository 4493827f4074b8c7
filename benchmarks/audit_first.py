"""Audits the first accepted kernels of a corpus and keeps one line each.

    python benchmarks/audit_first.py --corpus FILE.jsonl.gz --out audit.jsonl [--count 100]

One kernel a problem (its lowest sha), in the order of their shas. Resumes where it stopped.
"""

from __future__ import annotations

import argparse
import json
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import corpus
import farm

from adjudge.contract import Outcome
from adjudge.errors import UsageError
from adjudge.frontends import kernelbench
from adjudge.inputs.codec import describe
from adjudge.judge.digest import gates_digest
from adjudge.judge.verify import Options, verify
from adjudge.worker.client import Zygote

#: Gates that must be decided for a kernel to count as judged.
CORE = ("wrong-value", "shape-dependent", "drops-nonfinite", "stale-output")


def judge(
    row: corpus.Row,
    zygote: Zygote,
    budget: float,
    runner: str,
    gates: tuple[str, ...] | None = None,
) -> dict[str, Any]:
    start = time.perf_counter()
    name = f"{row['problem']}-{row['sha'][:8]}"
    program, candidate = kernelbench.from_source(row["reference"], row["candidate"], name)
    options = Options(zygote=zygote, budget=budget, examine=False, runner=runner, gates=gates)
    verdict = verify(program, candidate, options)
    violations = [
        {
            "gate": f.gate,
            "scope": f.scope.value,
            "exact": f.exact,
            "message": f.violation.message,
            "where": f.violation.where,
            "index": f.violation.index,
            "expected": f.violation.expected,
            "got": f.violation.got,
            "bound": f.violation.bound,
            "replay": f.violation.replay,
            "probe": describe(f.violation.probe),
        }
        for f in verdict.findings
        if f.violation is not None
    ]
    return {
        "problem": row["problem"],
        "sha": row["sha"],
        "gates": gates_digest(),
        "standing": verdict.standing.value,
        "grade": verdict.grade,
        "required": verdict.required,
        "findings": {f.gate: f.outcome.value for f in verdict.findings},
        "reasons": {f.gate: f.reason for f in verdict.findings if f.outcome is not Outcome.PASS},
        "violations": violations,
        "probes": verdict.probes,
        "seconds": round(time.perf_counter() - start, 2),
    }


def decided(line: dict[str, Any]) -> bool:
    findings = line.get("findings", {})
    return all(findings.get(g) in ("pass", "violation", "refusal") for g in CORE)


@dataclass(frozen=True)
class Job:
    row: corpus.Row
    budget: float
    runner: str


def line_of(job: Job) -> dict[str, Any]:
    """The record of one job, in a process of the farm."""
    try:
        return judge(job.row, farm.zygote(), job.budget, job.runner)
    except UsageError as error:
        return _fault(job.row, f"not judged: {error}")
    except Exception as error:
        return _fault(job.row, f"{type(error).__name__}: {error}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--corpus", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--count", type=int, default=100)
    parser.add_argument("--budget", type=float, default=30.0, help="seconds of probes a verdict")
    parser.add_argument("--jobs", type=int, default=1, help="processes")
    parser.add_argument("--runner", default="interpret", choices=("interpret", "cuda"))
    options = parser.parse_args()
    lines = []
    if options.out.exists():
        lines = [json.loads(line) for line in options.out.read_text().splitlines()]
    done = {line["sha"] for line in lines if line["gates"] == gates_digest()}
    rows = corpus.first_accepted(options.corpus, options.count)
    jobs = [Job(row, options.budget, options.runner) for row in rows if row["sha"] not in done]
    for line in farm.answers(line_of, jobs, options.jobs, runner=options.runner):
        lines.append(line)
        with options.out.open("a") as sink:
            sink.write(json.dumps(line) + "\n")
        convicted = [v["gate"] for v in line.get("violations", [])]
        print(line["problem"], line.get("standing", line.get("fault")), convicted, flush=True)
    current = [line for line in lines if line["gates"] == gates_digest()]
    print(f"{sum(map(decided, current))} of {len(current)} have {', '.join(CORE)} all decided")


def _fault(row: corpus.Row, words: str) -> dict[str, Any]:
    return {"problem": row["problem"], "sha": row["sha"], "gates": gates_digest(), "fault": words}


if __name__ == "__main__":
    main()
