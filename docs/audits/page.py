"""The page on how often verdicts are right, from the records beside it."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

from adjudge.judge.digest import gates_digest
from adjudge.judge.selfcheck import wilson

HERE = Path(__file__).resolve().parent
#: When and on what the records were made.
MADE = "2026-12-02 (of references 2026-12-04), in the interpreter, x86-64, 2 cores"
#: The record of a GPU, and how it was made.
CUDA = "fairness-cuda.jsonl"
MADE_ON_CUDA = "2026-12-03, several judges at once, at most 12 seconds of probes a verdict"
#: How the reason of a finding begins that no probe was left for.
BUDGET = ("budget", "no pair of runs could be made")
HONEST = {"reference": "the reference itself", "compiled": "`torch.compile` of the reference"}
#: A mutant that gives the reference's own bits, or does not run, says nothing.
VACUOUS = ("equivalent", "unbuilt")

Line = dict[str, Any]


def page() -> str:
    fairness, audit = _read("fairness.jsonl"), _read("first-100/audit.jsonl")
    return "\n".join(
        [
            "# How often it is right",
            "",
            f"Records of {MADE}; `benchmarks/fairness.py` and `benchmarks/audit_first.py` make them, "
            "`docs/generate.py` makes this page.",
            "",
            "## Honest candidates, and planted faults",
            "",
            "| candidate | gates | judged | convicted | 95% interval (Wilson) |",
            "| --- | --- | --- | --- | --- |",
            *_rows(fairness),
            "",
            *_ages([*fairness, *audit]),
            "The first 20 problems of each level of KernelBench by the hash of their names. "
            "`benchmarks/mutants.py` plants each fault in the reference; mutants that give the "
            "reference's own bits, or do not run, are left out. Nearly all that is missed stands in "
            "deep networks, which ten seconds of probes do not get through.",
            "",
            *_on_a_gpu(),
            "## Accepted kernels",
            "",
            *_audited(audit),
            "",
            "Read against their source, one by one: [first-100](first-100/README.md).",
            "",
        ]
    )


def _on_a_gpu() -> list[str]:
    """The honest candidates that a GPU has run."""
    if not (HERE / CUDA).exists():
        return []
    lines = _read(CUDA)
    devices = ", ".join(sorted({line["device"] for line in lines if "device" in line}))
    earlier = sorted({line["gates"] for line in lines} - {gates_digest()})
    age = f" Judged by an earlier set of gates ({', '.join(f'`{g[:8]}`' for g in earlier)})."
    return [
        "## Honest candidates on a GPU",
        "",
        f"The same tasks on {devices} (`{CUDA}`), {MADE_ON_CUDA}.{age if earlier else ''}",
        "",
        "| candidate | gates | judged | convicted | 95% interval (Wilson) |",
        "| --- | --- | --- | --- | --- |",
        *_rows(lines),
        "",
        *_limits(lines),
    ]


def _limits(lines: list[Line]) -> list[str]:
    """How much of what applies was decided, by kind: a control that says little protects little."""
    rows = []
    for kind in [kind for kind in HONEST if any(line["kind"] == kind for line in lines)]:
        outcomes = Counter(
            outcome
            for line in lines
            if line["kind"] == kind
            for gate, outcome in line["findings"].items()
            if outcome != "not_applicable" or line["reasons"][gate].startswith(BUDGET)
        )
        rows.append(
            f"Of {outcomes.total()} findings on {HONEST[kind]} that apply, {outcomes['pass']} are "
            "passes; a budget left out most of the others."
        )
    return [*rows, ""]


def _rows(lines: list[Line]) -> list[str]:
    rows = []
    there = {line["kind"] for line in lines}
    kinds = [*(kind for kind in HONEST if kind in there), *sorted(there - set(HONEST))]
    for kind in kinds:
        judged = [x for x in lines if x["kind"] == kind and x["standing"] not in VACUOUS]
        convicted = sum("violation" in x["findings"].values() for x in judged)
        low, high = wilson(convicted, len(judged))
        name = HONEST.get(kind, f"{kind}, planted")
        gates = max(len(x["findings"]) for x in judged)
        rows.append(f"| {name} | {gates} | {len(judged)} | {convicted} | {low:.0%} to {high:.0%} |")
    return rows


def _ages(lines: list[Line]) -> list[str]:
    """What to know of records that other gates made than those of this version."""
    earlier = sorted({line["gates"] for line in lines} - {gates_digest()})
    if not earlier:
        return []
    names = ", ".join(f"`{digest[:8]}`" for digest in earlier)
    return [
        "Rows with fewer gates than the first, and the accepted kernels below, were judged by an "
        f"earlier set of gates ({names}): they take hours, and speak of that set alone.",
        "",
    ]


def _audited(lines: list[Line]) -> list[str]:
    standings = Counter(line["standing"] for line in lines)
    gates = Counter(v["gate"] for line in lines for v in line["violations"])
    words = ", ".join(f"{standings[name]} {name}" for name in sorted(standings))
    return [
        f"{len(lines)} Triton kernels that the field's test accepts, one a problem, lowest SHA-256 "
        f"first, under {max(len(line['findings']) for line in lines)} gates: {words}.",
        "",
        "| gate | kernels convicted |",
        "| --- | --- |",
        *(f"| {gate} | {count} |" for gate, count in gates.most_common()),
    ]


def _read(name: str) -> list[Line]:
    return [json.loads(line) for line in (HERE / name).read_text(encoding="utf-8").splitlines()]
