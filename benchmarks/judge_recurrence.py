"""The positive control: every member of `gated_recurrence` under every gate, and versions with a fault.

    python benchmarks/judge_recurrence.py [--runner interpret] [--jobs 2] [--only SUBSTRING]
    python benchmarks/judge_recurrence.py --runner cuda

In the interpreter the portable path is judged in float32; on a Hopper GPU the native kernels in
bfloat16, which are then required; and on either what must be convicted. Writes one line a verdict to
docs/audits/recurrence.jsonl in place of an earlier one of the same, and docs/audits/recurrence.md.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass, replace
from datetime import date
from pathlib import Path
from typing import Any

import gated_recurrence
from adjudge.contracts.file import load
from adjudge.frontends import kernelbench
from adjudge.judge.digest import gates_digest
from adjudge.judge.verify import Options, verify
from adjudge.worker.client import Zygote
from adjudge.worker.launch import hide_device

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests" / "recurrence" / "judged"))
from planted import FAULTS, Fault, broken, plant
from tasks import BY_NAME, FORMS, MEMBERS, STRONG, candidate, contract_path, point_of, reference

AUDITS = ROOT / "docs" / "audits"
RECORD = AUDITS / "recurrence.jsonl"
HONEST = "honest"
#: What the native kernels are held to: bfloat16 operands, float32 sums.
NATIVE_REGIME = "bf16xfp32"
#: Seconds that one verdict may take before it counts as a fault of ours.
LIMIT = 1800.0


@dataclass(frozen=True)
class Job:
    kind: str
    member: str
    form: str
    runner: str

    @property
    def name(self) -> str:
        return f"{self.runner}/{self.member}/{self.form}/{self.kind}"


def jobs(runner: str) -> Iterator[Job]:
    """What is judged where: all members and forms in the interpreter, and on a GPU those that have
    kernels; after them the faults, which lie in the portable path and in the kernels."""
    for member in MEMBERS:
        if runner == "cuda" and not member.native:
            continue
        strong = [STRONG] if runner == "cuda" and "f" in member.raw else []
        for form in (*FORMS, *strong):
            yield Job(HONEST, member.name, form, runner)
    for fault in FAULTS:
        for member in MEMBERS:
            if fault.fits(member, runner):
                yield Job(fault.name, member.name, fault.form_on(runner), runner)


def judge(job: Job, zygote: Zygote, **how: Any) -> dict[str, Any]:
    """The record's line of one job.

    Args:
        how: options of the verdict.
    """
    member, native = BY_NAME[job.member], job.runner == "cuda"
    fault = next((f for f in FAULTS if f.name == job.kind), None)
    # A fault in the kernels lies in the package that the candidate imports (`separately`).
    source = candidate(member, job.form) if fault is None or native else broken(member, fault)
    point = point_of(member, job.form, native)
    if fault is not None and native and fault.native.group:
        point = replace(point, group=fault.native.group)
    text = reference(member, job.form, point)
    program, under_judgement = kernelbench.from_source(text, source, job.name)
    options = Options(
        zygote=zygote,
        runner=job.runner,
        # A fault is convicted by the gate whose it is; the others are not asked.
        gates=None if fault is None else fault.gates,
        fast=fault is not None,
        contract=load(contract_path(member)),
        required=NATIVE_REGIME if native else "",
    )
    verdict = verify(program, under_judgement, replace(options, **how))
    convicted = [f for f in verdict.violations if f.violation is not None]
    return {
        "kind": job.kind,
        "op": job.member,
        "form": job.form,
        "runner": job.runner,
        "device": verdict.provenance.device,
        "versions": dict(verdict.provenance.versions),
        "date": date.today().isoformat(),
        "gates": gates_digest(),
        "standing": verdict.standing.value,
        "grade": verdict.grade,
        "required": verdict.required,
        "findings": {f.gate: f.outcome.value for f in verdict.findings},
        "reasons": {f.gate: f.reason for f in verdict.findings if f.outcome.value != "pass"},
        "violations": [
            {
                "gate": f.gate,
                "scope": f.scope.value,
                "message": f.violation.message,
                "where": f.violation.where,
                "bound": f.violation.bound,
                "probe": f.violation.replay,
                "sizes": dict(f.violation.probe.sizes),
            }
            for f in convicted
            if f.violation is not None
        ],
        "refusals": list(verdict.refusals),
        "probes": verdict.probes,
        "seconds": round(verdict.seconds, 1),
        "timings": {name: round(seconds, 1) for name, seconds in verdict.timings if seconds >= 0.1},
    }


def separately(job: Job, out: Path, budget: float | None, cubins: str) -> dict[str, Any]:
    """The line of one job, in a process of its own."""
    command = [sys.executable, __file__, "--one", job.name, "--out", str(out)]
    if budget is not None:
        command += ["--budget", str(budget)]
    environment = dict(os.environ)
    if job.runner == "cuda":
        environment["GATED_RECURRENCE_CACHE"] = cubins
        environment["GATED_RECURRENCE_REQUIRE_NATIVE"] = "1"
        # Folders on Python's path are what a worker may read.
        places = [os.environ.get("PYTHONPATH", ""), cubins]
        fault = next((f for f in FAULTS if f.name == job.kind), None)
        environment["PYTHONPATH"] = os.pathsep.join([*_planted(fault, cubins), *places])
    found = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT, env=environment)
    if found.returncode:
        words = found.stderr.strip().splitlines()
        facts = {"kind": job.kind, "op": job.member, "form": job.form, "runner": job.runner}
        fault = words[-1] if words else "it ended without a word"
        return facts | {"standing": "fault", "findings": {}, "fault": fault}
    line: dict[str, Any] = json.loads(out.read_text(encoding="utf-8"))
    return line


_planting = threading.Lock()


def _planted(fault: Fault | None, cubins: str) -> list[str]:
    """The folder that has the package with the fault, made and compiled by whoever asks first."""
    if fault is None:
        return []
    folder = Path(cubins) / f"fault-{FAULTS.index(fault)}"
    with _planting:
        if not folder.exists():
            plant(fault, Path(gated_recurrence.__file__).parent, folder)
            path = os.pathsep.join([str(folder), os.environ.get("PYTHONPATH", "")])
            environment = {**os.environ, "GATED_RECURRENCE_CACHE": cubins, "PYTHONPATH": path}
            command = "from gated_recurrence.native import build; build.cubins()"
            subprocess.run([sys.executable, "-c", command], check=True, env=environment)
    return [str(folder)]


def key(line: dict[str, Any]) -> tuple[str, ...]:
    return tuple(line[name] for name in ("runner", "op", "form", "kind"))


def record() -> list[dict[str, Any]]:
    if not RECORD.exists():
        return []
    return [json.loads(line) for line in RECORD.read_text(encoding="utf-8").splitlines()]


def merge(line: dict[str, Any]) -> None:
    """Puts a line in the place of an earlier one of the same."""
    held = {key(each): each for each in record()} | {key(line): line}
    lines = [json.dumps(held[name], ensure_ascii=False) for name in sorted(held)]
    RECORD.write_text("\n".join(lines) + "\n", encoding="utf-8")


def page(lines: list[dict[str, Any]]) -> str:
    """The page from the record's lines."""
    honest = [line for line in lines if line["kind"] == HONEST]
    sound = sum(line["standing"] == "sound" for line in honest)
    faults = [line for line in lines if line["kind"] != HONEST]
    caught = sum(bool(line.get("violations")) for line in faults)
    where = sorted(
        {f"{line['runner']}, {line.get('device', '?')}, {line.get('date', '?')}" for line in lines}
    )
    rows = []
    for member in MEMBERS:
        for runner in ("interpret", "cuda"):
            cells = []
            for form in (*FORMS, STRONG):
                found = [x for x in honest if key(x) == (runner, member.name, form, HONEST)]
                cells.append(_standing(found[0]) if found else "")
            if any(cells):
                rows.append(f"| {member.name} | {runner} | {' | '.join(cells)} |")
    planted = [
        f"| {f.name} | {runner} | {' | '.join(_caught(f, runner, m.name, faults) for m in MEMBERS)} |"
        for f in FAULTS
        for runner in ("interpret", "cuda")
    ]
    return "\n".join(
        [
            "# The recurrences, judged",
            "",
            "Written by `benchmarks/judge_recurrence.py`; the record is "
            "[recurrence.jsonl](recurrence.jsonl), the contracts lie beside the operations in "
            "`src/gated_recurrence`, the tasks are made by `tests/recurrence/judged/tasks.py`.",
            "",
            f"Honest members: {sound} of {len(honest)} sound. Planted faults: {caught} of "
            f"{len(faults)} convicted. Judged: {'; '.join(where)}.",
            "",
            "In the interpreter the portable path in float32; on the GPU the native kernels, required, "
            f"in bfloat16 under {NATIVE_REGIME}. Every gate; findings that do not apply are in the "
            "record with their reasons.",
            "",
            f"| member | runner | {' | '.join((*FORMS, STRONG))} |",
            f"| --- | --- | {' | '.join('---' for _ in (*FORMS, STRONG))} |",
            *rows,
            "",
            *_notes(lines),
            "The gate that convicts a version with one planted fault "
            "(`tests/recurrence/judged/planted.py`), on a GPU in the kernels of members with one gate a "
            "head; – where there is nothing to plant it in:",
            "",
            f"| fault | runner | {' | '.join(member.name for member in MEMBERS)} |",
            f"| --- | --- | {' | '.join('---' for _ in MEMBERS)} |",
            *planted,
            "",
        ]
    )


def _notes(lines: list[dict[str, Any]]) -> list[str]:
    """What no verdict was given on yet, and verdicts on tasks that were other ones than they are now."""
    held = {key(line) for line in lines}
    asked = [job for runner in ("interpret", "cuda") for job in jobs(runner)]
    missing = [job for job in asked if (job.runner, job.member, job.form, job.kind) not in held]
    notes: dict[str, list[str]] = {}
    for job in missing:
        planted = job.kind != HONEST
        which = f", {job.kind}" if planted else ""
        name = job.member if planted else f"{job.member} {job.form}"
        notes.setdefault(f"Not judged yet, {job.runner}{which}", []).append(name)
    honest = [line for line in lines if line["kind"] == HONEST]
    for line in honest:
        if "note" in line:
            which = f"{line['op']} {line['form']}"
            notes.setdefault(f"{line['runner']}, {line['note']}", []).append(which)
    convicted = any(line.get("violations") for line in honest)
    why = "What convicts the native kernels: [docs/design/recurrence.md](../design/recurrence.md)."
    found = [f"- {note}: {', '.join(of)}." for note, of in notes.items()]
    found += [f"- {why}"] if convicted else []
    return [*found, ""] if found else []


def _caught(fault: Fault, runner: str, member: str, lines: list[dict[str, Any]]) -> str:
    """The gates that convict the member with the fault."""
    if not fault.fits(BY_NAME[member], runner):
        return "–"
    asked = (runner, member, fault.form_on(runner), fault.name)
    found = [line for line in lines if key(line) == asked]
    gates = sorted({v["gate"] for line in found for v in line.get("violations", [])})
    return ", ".join(gates) or ("missed" if found else "")


def _standing(line: dict[str, Any]) -> str:
    passed = sum(outcome == "pass" for outcome in line["findings"].values())
    words = f"{line['standing']}: {passed} pass"
    convicted = [v["gate"] for v in line.get("violations", [])]
    return f"{words}; convicted by {', '.join(convicted)}" if convicted else words


def build_kernels(folder: str) -> str:
    """Compiles the native kernels once, where the workers' sandbox lets them be read."""
    from gated_recurrence.native import build

    os.environ["GATED_RECURRENCE_CACHE"] = folder
    build.cubins()
    return folder


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runner", choices=["interpret", "cuda", "both"], default="interpret")
    parser.add_argument("--jobs", type=int, default=1, help="verdicts at once")
    parser.add_argument(
        "--only", default="", help="comma-separated substrings of runner/member/form/kind"
    )
    parser.add_argument(
        "--budget", type=float, help="seconds of probes a verdict; all if not given"
    )
    parser.add_argument("--missing", action="store_true", help="only what the record does not hold")
    parser.add_argument("--page", action="store_true", help="only write the page")
    parser.add_argument("--one", help="runner/member/form/kind, in this process")
    parser.add_argument("--out", type=Path, help="file for the line of --one")
    options = parser.parse_args()
    if options.one:
        runner, member, form, kind = options.one.split("/", 3)
        with Zygote.start(runner=runner) as zygote:
            if runner == "cuda":
                hide_device()
            line = judge(Job(kind, member, form, runner), zygote, budget=options.budget)
        options.out.write_text(json.dumps(line, ensure_ascii=False), encoding="utf-8")
        return
    if not options.page:
        _run(options)
    AUDITS.joinpath("recurrence.md").write_text(page(record()), encoding="utf-8")


def _run(options: argparse.Namespace) -> None:
    runners = ["cuda", "interpret"] if options.runner == "both" else [options.runner]
    held = {key(line) for line in record() if line["standing"] != "fault"}
    asked = [
        job
        for runner in runners
        for job in jobs(runner)
        if any(word in job.name for word in options.only.split(","))
        and not (options.missing and (job.runner, job.member, job.form, job.kind) in held)
    ]
    start = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(options.jobs) as threads:
        cubins = build_kernels(f"{folder}/cubins") if "cuda" in runners else ""
        running = [
            threads.submit(separately, job, Path(folder) / f"{n}.json", options.budget, cubins)
            for n, job in enumerate(asked)
        ]
        for done in as_completed(running):
            line = done.result()
            merge(line)
            shown = line.get("fault") or [v["gate"] for v in line["violations"]]
            took = f"{line.get('seconds', 0)} s, at {time.perf_counter() - start:.0f} s"
            print("/".join(key(line)), line["standing"], shown, took, flush=True)


if __name__ == "__main__":
    main()
