"""Runs a candidate under compute-sanitizer and hands what it says to the gates that it concerns.

The tool does not start behind the sandbox's door, so that this is for code that is trusted
(`--isolation none`). Only an access outside of every allocation convicts: it is undefined, whatever came
of it. A race or an uninitialised read is noted with its place: tools take some orders that hardware
guarantees for races, and what is read may be thrown away.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from adjudge import arrays
from adjudge.contract import Finding, Outcome, Scope, Violation
from adjudge.deep.reports import GATES, Reading, Report, read
from adjudge.errors import UsageError
from adjudge.judge.docket import Docket
from adjudge.probe import Probe
from adjudge.worker.launch import child_environment

#: Points that a candidate is run at: the ordinary one, and others that it answered at.
MOST_PROBES = 3
#: Allocations whose sizes are multiples of the driver's granule touch each other: an access past one
#: would be an access to the next.
OPTIONS = {"memcheck": ("--padding", "4096")}
#: Seconds for one tool.
SECONDS = 300.0


def tool() -> str:
    """Path of compute-sanitizer.

    Raises:
        UsageError: it is not here.
    """
    found = shutil.which("compute-sanitizer") or shutil.which(
        "compute-sanitizer", path="/usr/local/cuda/bin"
    )
    if found is None:
        raise UsageError(
            "this machine has no compute-sanitizer, which --deep runs",
            todo="Install a CUDA toolkit, or leave --deep out: guard zones and poison still judge.",
        )
    return found


def check(runner: str, isolation: str) -> None:
    """Raises UsageError: --deep cannot be had so."""
    if runner != "cuda":
        raise UsageError(
            "--deep needs a GPU",
            todo="Add --runner cuda; the interpreter checks every address anyway.",
        )
    if isolation != "none":
        raise UsageError(
            "--deep runs the candidate without a sandbox",
            todo="Add --isolation none if you trust the code.",
        )
    tool()


def examined(docket: Docket, findings: tuple[Finding, ...]) -> tuple[Finding, ...]:
    """The findings, with what each tool has seen."""
    probes = chosen(docket)
    if not probes:
        return findings
    readings = {name: _reading(docket, probes, name) for name in GATES}
    return tuple(attributed(f, readings, probes[0], docket.scene.native) for f in findings)


def chosen(docket: Docket) -> list[Probe]:
    """Plain points of different sizes at which the candidate answered."""
    ordinary = docket.scene.ordinary
    plain = [Probe(sizes=p.sizes) for p, o in docket.observations.items() if o.answered]
    found = [p for p in dict.fromkeys([ordinary, *plain]) if p in docket.observations]
    return found[:MOST_PROBES]


def attributed(
    finding: Finding, readings: Mapping[str, Reading], probe: Probe, native: Probe | None
) -> Finding:
    """One gate's finding, with what the tools that concern it have seen."""
    for name, reading in readings.items():
        if GATES[name] != finding.gate:
            continue
        if not reading.complete:
            words = f"compute-sanitizer {name} did not come to its end"
            finding = replace(finding, notes=(*finding.notes, words))
        for report in reading.reports:
            if name == "memcheck" and finding.outcome is not Outcome.VIOLATION:
                scope = Scope.DECLARED if probe == native else Scope.EXTENDED
                finding = _convicted(finding, report, probe, scope)
            else:
                words = f"{report.what}, {report.where} (compute-sanitizer {name})"
                finding = replace(finding, notes=(*finding.notes, words))
    return finding


def _convicted(finding: Finding, report: Report, probe: Probe, scope: Scope) -> Finding:
    violation = Violation(
        probe=probe,
        signature="access",
        message=f"{report.what}, {report.detail} (compute-sanitizer memcheck)",
        where=report.where,
    )
    return replace(
        finding,
        outcome=Outcome.VIOLATION,
        reason=f"{report.what} in {report.where}",
        scope=scope,
        exact=True,
        violation=violation,
    )


def _reading(docket: Docket, probes: Sequence[Probe], name: str) -> Reading:
    with tempfile.TemporaryDirectory(prefix="adjudge-deep-") as folder:
        _write(docket, probes, Path(folder))
        log = Path(folder) / "log"
        command = [tool(), "--tool", name, "--log-file", str(log), *OPTIONS.get(name, ())]
        command += [sys.executable, "-m", "adjudge.deep.alone", folder]
        caches = dict.fromkeys(("TRITON_CACHE_DIR", "TORCH_EXTENSIONS_DIR", "TMPDIR"), folder)
        environment = {**child_environment(), "PYTORCH_NO_CUDA_MEMORY_CACHING": "1", **caches}
        try:
            subprocess.run(
                command,
                env=environment,
                cwd=folder,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                timeout=SECONDS,
                check=False,
            )
        except subprocess.TimeoutExpired:
            return Reading((), False)
        return read(log.read_text(errors="replace") if os.path.exists(log) else "")


def _write(docket: Docket, probes: Sequence[Probe], folder: Path) -> None:
    candidate = docket.scene.candidate
    for name, text in candidate.files:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    (folder / "candidate.py").write_text(candidate.source)
    cases = [_case(docket, probe) for probe in probes]
    given = {"entry": candidate.entry, "kind": candidate.kind, "cases": cases}
    torch.save(given, folder / "given.pt")


def _case(docket: Docket, probe: Probe) -> dict[str, Any]:
    arguments = docket.builder.arguments(probe)
    weights = docket.builder.weights(probe, arguments)
    return {
        "init_args": arguments.init_args,
        "init_kwargs": dict(arguments.init_kwargs),
        "args": arguments.args,
        "kwargs": dict(arguments.kwargs),
        "weights": None
        if weights is None
        else {name: arrays.from_numpy(w, w.dtype.name) for name, w in weights.items()},
    }
