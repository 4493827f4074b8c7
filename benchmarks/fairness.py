"""Fairness and recall on real references: the reference itself must be clean, mutants must not.

    python benchmarks/fairness.py --corpus FILE.jsonl.gz --out docs/audits/fairness.jsonl
    python benchmarks/fairness.py --corpus FILE.jsonl.gz --out ... --compiled
    python benchmarks/fairness.py --corpus FILE.jsonl.gz --out ... --no-mutants --runner cuda --jobs 12

With `--compiled` the candidate is `torch.compile` of the reference, which must be as clean. Appends
one line a verdict and skips what is already there, so that an interrupted run resumes.
"""

from __future__ import annotations

import argparse
import json
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import corpus
import farm
import mutants
import torch

from adjudge import arrays
from adjudge.frontends import kernelbench
from adjudge.inputs.sampler import Sampler
from adjudge.judge.digest import gates_digest
from adjudge.judge.verify import RUN_SECONDS, Options, verify
from adjudge.program import Arguments, Program
from adjudge.symbols import shrunken
from adjudge.weights import construct

#: Seconds for one run where it may compile: a deep model's graph on one core.
COMPILE_SECONDS = 120.0


def judge(
    program: Program, row: corpus.Row, kind: str, source: str, options: Options
) -> dict[str, Any]:
    start = time.perf_counter()
    candidate = kernelbench.candidate_from(source, row["problem"])
    verdict = verify(program, candidate, options)
    return {
        "problem": row["problem"],
        "kind": kind,
        "gates": gates_digest(),
        "standing": verdict.standing.value,
        "grade": verdict.grade,
        "findings": {f.gate: f.outcome.value for f in verdict.findings},
        "reasons": {f.gate: f.reason for f in verdict.findings if f.outcome.value != "pass"},
        "runner": options.runner,
        "device": verdict.provenance.device,
        "probes": verdict.probes,
        "seconds": round(time.perf_counter() - start, 2),
    }


def planted_in_vain(program: Program, source: str) -> str:
    """Why a mutant says nothing: "equivalent" if it gives the reference's own bits on three draws,
    "unbuilt" if it does not run where the reference does; "" if it is a fault like any other."""
    namespace: dict[str, Any] = {"__name__": "mutant"}
    exec(compile(source, "mutant", "exec"), namespace)
    sizes = shrunken(program)
    for seed in range(3):
        arguments = program.arguments(sizes, Sampler(seed))
        wanted = _answer(namespace["Model"], arguments)
        try:
            got = _answer(namespace["ModelNew"], arguments)
        except RuntimeError:
            return "unbuilt"
        if not all(map(torch.equal, wanted, got)):
            return ""
    return "equivalent"


def _answer(factory: Any, arguments: Arguments) -> list[torch.Tensor]:
    built = construct(factory, arguments.init_args, arguments.init_kwargs, seed=42, redrawn=False)
    with torch.no_grad():
        result = built(*arrays.map_leaves(arguments.args, _fresh), **dict(arguments.kwargs))
    return [tensor for _, tensor in arrays.tensors_in(result)]


def _fresh(path: str, value: Any) -> Any:
    return value.clone() if isinstance(value, torch.Tensor) else value


def _unjudged(row: corpus.Row, kind: str, **facts: Any) -> dict[str, Any]:
    return {"problem": row["problem"], "kind": kind, "gates": gates_digest(), **facts}


def _kinds(reference: str, compiled: bool, planted: bool) -> dict[str, str]:
    """Kind -> candidate source."""
    if compiled:
        return {"compiled": reference + mutants.COMPILED}
    return {"reference": reference + mutants.HONEST} | (
        mutants.mutants(reference) if planted else {}
    )


@dataclass(frozen=True)
class Job:
    row: corpus.Row
    kind: str
    source: str
    budget: float
    runner: str

    @property
    def compiled(self) -> bool:
        return self.kind == "compiled"


def line_of(job: Job) -> dict[str, Any]:
    """The record of one job, in a process of the farm."""
    honest = job.kind in ("reference", "compiled")
    how = Options(
        zygote=farm.zygote(),
        # What is planted shows in the cheap probes or hardly at all.
        budget=job.budget if honest else job.budget / 2,
        examine=False,
        runner=job.runner,
        face="cpu" if job.compiled else "cuda",
        allow_compiler=job.compiled,
        timeout=COMPILE_SECONDS if job.compiled else RUN_SECONDS,
    )
    try:
        program = kernelbench.KernelBenchProgram(job.row["reference"], job.row["problem"])
        vacuous = "" if honest else planted_in_vain(program, job.source)
        if vacuous:
            return _unjudged(job.row, job.kind, standing=vacuous, findings={})
        return judge(program, job.row, job.kind, job.source, how)
    except Exception as error:
        return _unjudged(job.row, job.kind, fault=f"{type(error).__name__}: {error}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--corpus", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--per-level", type=int, default=20)
    parser.add_argument("--only", default="", help="substring of the problem's name")
    parser.add_argument("--level", type=int, action="append", help="of the problem; all if absent")
    parser.add_argument("--no-mutants", action="store_true")
    parser.add_argument("--compiled", action="store_true", help="judge torch.compile of each")
    parser.add_argument("--runner", default="interpret", choices=("interpret", "cuda"))
    parser.add_argument("--jobs", type=int, default=1, help="processes")
    parser.add_argument("--budget", type=float, default=30.0, help="seconds of probes a verdict")
    options = parser.parse_args()
    done = set()
    if options.out.exists():
        for line in options.out.read_text().splitlines():
            held = json.loads(line)
            if held["gates"] == gates_digest():
                done.add((held["problem"], held["kind"]))
    jobs = [
        Job(row, kind, source, options.budget, options.runner)
        for row in corpus.tasks(options.corpus, per_level=options.per_level)
        if options.only in row["problem"]
        and (options.level is None or row["level"] in options.level)
        for kind, source in _kinds(
            row["reference"], options.compiled, not options.no_mutants
        ).items()
        if (row["problem"], kind) not in done
    ]
    # The deep ones take longest: begun last, they would be waited for alone.
    jobs.sort(key=lambda job: -job.row["level"])
    how = {
        "runner": options.runner,
        "face": "cpu" if options.compiled else "cuda",
        "allow_compiler": options.compiled,
    }
    for line in farm.answers(line_of, jobs, options.jobs, **how):
        with options.out.open("a") as sink:
            sink.write(json.dumps(line) + "\n")
        shown = line.get("fault") or Counter(line["findings"].values())
        print(line["problem"], line["kind"], line.get("standing", "FAULT"), shown, flush=True)


if __name__ == "__main__":
    main()
