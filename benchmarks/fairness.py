"""Fairness and recall on real references: the reference itself must be clean, mutants must not.

    python benchmarks/fairness.py --corpus FILE.jsonl.gz --out docs/audits/fairness.jsonl
    python benchmarks/fairness.py --corpus FILE.jsonl.gz --out ... --compiled

With `--compiled` the candidate is `torch.compile` of the reference, which must be as clean. Appends
one line a verdict and skips what is already there, so that an interrupted run resumes.
"""

from __future__ import annotations

import argparse
import json
import time
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import corpus
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
from adjudge.worker.client import Zygote

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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--corpus", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--per-level", type=int, default=20)
    parser.add_argument("--only", default="", help="substring of the problem's name")
    parser.add_argument("--no-mutants", action="store_true")
    parser.add_argument("--compiled", action="store_true", help="judge torch.compile of each")
    parser.add_argument("--shard", default="0/1", help="this part of the tasks, out of how many")
    parser.add_argument("--budget", type=float, default=30.0, help="seconds of probes a verdict")
    options = parser.parse_args()
    done = set()
    if options.out.exists():
        for line in options.out.read_text().splitlines():
            held = json.loads(line)
            if held["gates"] == gates_digest():
                done.add((held["problem"], held["kind"]))
    compiled = options.compiled
    face = "cpu" if compiled else "cuda"
    with Zygote.start(isolation="full", face=face, allow_compiler=compiled) as zygote:
        how = Options(
            zygote=zygote,
            budget=options.budget,
            examine=False,
            face=face,
            allow_compiler=compiled,
            timeout=COMPILE_SECONDS if compiled else RUN_SECONDS,
        )
        part, parts = map(int, options.shard.split("/"))
        for row in corpus.tasks(options.corpus, per_level=options.per_level)[part::parts]:
            if options.only not in row["problem"]:
                continue
            kinds = _kinds(row["reference"], compiled, not options.no_mutants)
            kinds = {k: text for k, text in kinds.items() if (row["problem"], k) not in done}
            if not kinds:
                continue
            program = kernelbench.KernelBenchProgram(row["reference"], row["problem"])
            for kind, source in kinds.items():
                try:
                    honest = kind in ("reference", "compiled")
                    # What is planted shows in the cheap probes or hardly at all.
                    kind_how = how if honest else replace(how, budget=options.budget / 2)
                    vacuous = "" if honest else planted_in_vain(program, source)
                    if vacuous:
                        line = _unjudged(row, kind, standing=vacuous, findings={})
                    else:
                        line = judge(program, row, kind, source, kind_how)
                except Exception as error:
                    line = _unjudged(row, kind, fault=f"{type(error).__name__}: {error}")
                with options.out.open("a") as sink:
                    sink.write(json.dumps(line) + "\n")
                shown = line.get("fault") or Counter(line["findings"].values())
                print(row["problem"], kind, line.get("standing", "FAULT"), shown, flush=True)


if __name__ == "__main__":
    main()
