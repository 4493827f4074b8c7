"""Fairness and recall on real references: the reference itself must be clean, mutants must not.

    python benchmarks/fairness.py --corpus FILE.jsonl.gz --out docs/audits/fairness.jsonl

Appends one line a verdict and skips what is already there, so that an interrupted run resumes.
"""

from __future__ import annotations

import argparse
import json
import time
from collections import Counter
from pathlib import Path
from typing import Any

import corpus
import mutants

from adjudge.frontends import kernelbench
from adjudge.judge.digest import gates_digest
from adjudge.judge.verify import Options, verify
from adjudge.program import Program
from adjudge.worker.client import Zygote


def judge(
    program: Program, row: corpus.Row, kind: str, source: str, zygote: Zygote, budget: float
) -> dict[str, Any]:
    start = time.perf_counter()
    candidate = kernelbench.candidate_from(source, row["problem"])
    options = Options(zygote=zygote, budget=budget, examine=False)
    verdict = verify(program, candidate, options)
    return {
        "problem": row["problem"],
        "kind": kind,
        "gates": gates_digest(),
        "standing": verdict.standing.value,
        "grade": verdict.grade,
        "findings": {f.gate: f.outcome.value for f in verdict.findings},
        "reasons": {f.gate: f.reason for f in verdict.findings if f.outcome.value != "pass"},
        "probes": verdict.probes,
        "seconds": round(time.perf_counter() - start, 2),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--corpus", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--per-level", type=int, default=20)
    parser.add_argument("--only", default="", help="substring of the problem's name")
    parser.add_argument("--no-mutants", action="store_true")
    parser.add_argument("--shard", default="0/1", help="this part of the tasks, out of how many")
    parser.add_argument("--budget", type=float, default=30.0, help="seconds of probes a verdict")
    options = parser.parse_args()
    done = set()
    if options.out.exists():
        for line in options.out.read_text().splitlines():
            held = json.loads(line)
            if held["gates"] == gates_digest():
                done.add((held["problem"], held["kind"]))
    with Zygote.start(isolation="full", face="cuda", allow_compiler=False) as zygote:
        part, parts = map(int, options.shard.split("/"))
        for row in corpus.tasks(options.corpus, per_level=options.per_level)[part::parts]:
            if options.only not in row["problem"]:
                continue
            kinds = {"reference": row["reference"] + mutants.HONEST}
            if not options.no_mutants:
                kinds |= mutants.mutants(row["reference"])
            kinds = {k: text for k, text in kinds.items() if (row["problem"], k) not in done}
            if not kinds:
                continue
            program = kernelbench.KernelBenchProgram(row["reference"], row["problem"])
            for kind, source in kinds.items():
                try:
                    line = judge(program, row, kind, source, zygote, options.budget)
                except Exception as error:
                    line = {
                        "problem": row["problem"],
                        "kind": kind,
                        "gates": gates_digest(),
                        "fault": f"{type(error).__name__}: {error}",
                    }
                with options.out.open("a") as sink:
                    sink.write(json.dumps(line) + "\n")
                shown = line.get("fault") or Counter(line["findings"].values())
                print(row["problem"], kind, line.get("standing", "FAULT"), shown, flush=True)


if __name__ == "__main__":
    main()
