"""What verdicts on a GPU cost, beside the field's usual test of the same kernels in the same run.

    python benchmarks/audit_speed.py --corpus FILE.jsonl.gz [--count 200] [--alone 20] [--usual 10]
        [--wall 280] [--out FILE.jsonl]

One accepted kernel a problem, so ordered that every beginning is a fair part of all levels. The first
`--usual` ones are given the usual test, a fresh process each; the first `--alone` ones are judged one at
a time, each over several lanes; then `--count` go through a pool. Prints medians, kernels a second and
the ratio. Each verdict is written to `--out` as it is done, and what is known is printed even where
`--wall`, or a signal, ends the run.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

import corpus

from adjudge.contract import Outcome
from adjudge.errors import UsageError
from adjudge.frontends import kernelbench
from adjudge.judge.pool import Pool
from adjudge.judge.verify import Options, verify
from adjudge.worker.client import Zygote

USUAL = Path(__file__).resolve().parent / "usual_test.py"
#: Seconds after which the usual test is given up.
PATIENCE = 300.0
#: Seconds between lines of progress.
EVERY = 10.0
#: Parts of a verdict whose medians are printed.
PARTS = (
    "reference", "workers", "scout", "probes", "runs", "compiling", "oracle", "scale",
    "attribution", "fresh processes",
)  # fmt: skip


class Late(BaseException):
    """A verdict did not end in time. No Exception: what the reference raises is caught."""


@dataclass(frozen=True)
class Job:
    row: corpus.Row
    budget: float
    lanes: int
    runner: str
    #: Seconds one verdict may take, and the time (of `time.time`) at which all end.
    each: float
    until: float


@contextlib.contextmanager
def limited(seconds: float) -> Iterator[None]:
    def late(*_: Any) -> NoReturn:
        raise Late

    before = signal.signal(signal.SIGALRM, late)
    # Again every few seconds, should something have swallowed the first.
    signal.setitimer(signal.ITIMER_REAL, seconds, 5.0)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0.0)
        signal.signal(signal.SIGALRM, before)


def line_of(job: Job, zygote: Zygote) -> dict[str, Any]:
    """The record of one verdict; its seconds begin with the sources and end with the verdict."""
    start, own = time.perf_counter(), time.process_time()
    line: dict[str, Any] = {name: job.row[name] for name in ("problem", "level", "sha")}
    left = min(job.each, job.until - time.time())
    if left <= 0:
        return line | {"skipped": True}
    try:
        with limited(left):
            program, candidate = kernelbench.from_source(
                job.row["reference"], job.row["candidate"], job.row["problem"]
            )
            options = Options(
                zygote=zygote, runner=job.runner, budget=job.budget, examine=False, lanes=job.lanes
            )
            verdict = verify(program, candidate, options)
    except Late:
        return line | {"late": round(time.perf_counter() - start, 1)}
    except UsageError as error:
        return line | {"fault": f"not judged: {error}"}
    except Exception as error:
        return line | {"fault": f"{type(error).__name__}: {error}"}
    undecided = [f for f in verdict.findings if f.outcome is Outcome.INCONCLUSIVE]
    return line | {
        "standing": verdict.standing.value,
        "seconds": round(time.perf_counter() - start, 3),
        "cpu": round(time.process_time() - own, 3),
        "probes": verdict.probes,
        "grade": verdict.grade,
        "violations": {
            f.gate: [f.scope.value, f.violation.message, f.violation.replay]
            for f in verdict.findings
            if f.violation is not None
        },
        "undecided": {f.gate: f.reason for f in undecided},
        "warnings": list(verdict.warnings),
        "timings": {name: round(s, 3) for name, s in verdict.timings if s >= 0.02},
    }


def usual_seconds(row: corpus.Row, patience: float) -> tuple[float, str]:
    """Seconds and answer of the usual test, process start and compilation included."""
    text = json.dumps({name: row[name] for name in ("reference", "candidate")})
    with tempfile.TemporaryDirectory() as cache:
        fresh = {"TRITON_CACHE_DIR": cache, "TORCH_EXTENSIONS_DIR": cache}
        start = time.perf_counter()
        try:
            done = subprocess.run(
                [sys.executable, str(USUAL)], input=text, capture_output=True, text=True,
                timeout=max(patience, 1.0), check=False, env={**os.environ, **fresh},
            )  # fmt: skip
            answer = done.stdout.strip() or "raised"
        except subprocess.TimeoutExpired:
            answer = "no answer"
        return time.perf_counter() - start, answer


class Verdicts:
    """Verdicts of some kernels, through a pool; what was done so far is there at any time."""

    def __init__(self, options: argparse.Namespace, judges: int, lanes: int, until: float) -> None:
        self._options = options
        self._lanes = lanes
        self._until = until
        self.judges = judges
        self.lines: list[dict[str, Any]] = []
        #: Seconds until the pool was ready, those of its work, and cores busy meanwhile.
        self.boot = self.wall = self.busy = 0.0

    def make(self, rows: Sequence[corpus.Row]) -> None:
        options, begun = self._options, time.perf_counter()
        jobs = [
            Job(row, options.budget, self._lanes, options.runner, options.each, self._until)
            for row in rows
        ]
        with Pool(judges=self.judges, lanes=self._lanes, runner=options.runner) as pool:
            self.judges, start, spent = pool.judges, time.perf_counter(), _spent()
            self.boot, told = start - begun, start
            for line in pool.answers(line_of, jobs):
                if line.get("skipped"):
                    continue
                self.lines.append(line)
                now = time.perf_counter()
                self.wall = now - start
                self.busy = (_spent() - spent) / self.wall
                if options.out is not None:
                    # At once: a run that is cut off has told what it has.
                    with options.out.open("a") as stream:
                        record = {"lanes": self._lanes, "judges": self.judges, **line}
                        stream.write(json.dumps(record) + "\n")
                if now - told > EVERY:
                    told = now
                    print(f"  {len(self.lines)} of {len(rows)} in {self.wall:.0f} s", flush=True)

    def words(self, name: str) -> list[str]:
        lines = self.lines
        rate = len([x for x in lines if "seconds" in x]) / self.wall if self.wall else 0.0
        found = [
            f"{name:22s}{len(lines):4d} kernels, {summary(lines)}",
            f"  {self.judges} judges, {self._lanes} lanes; up after {self.boot:.1f} s; then "
            f"{self.wall:.1f} s, {self.busy:.1f} cores busy; {rate:.2f} kernels a second",
        ]
        timings = [line["timings"] for line in lines if "timings" in line]
        parts = [
            f"{part} {statistics.median(t.get(part, 0.0) for t in timings):.2f}"
            for part in PARTS
            if any(part in t for t in timings)
        ]
        if parts:
            own = statistics.median(line["cpu"] for line in lines if "cpu" in line)
            found.append(f"  medians, s: judge's processor {own:.2f}, {', '.join(parts)}")
        found += [
            f"  {line['problem']}: {line['fault'][:300]}" for line in lines if "fault" in line
        ]
        found += [
            f"  {line['problem']}: no verdict within {line['late']} s"
            for line in lines
            if "late" in line
        ]
        return found


def _spent() -> float:
    """Processor seconds that this machine has spent."""
    with contextlib.suppress(OSError):
        fields = Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:]
        ticks = [int(n) for n in fields]
        # All but idle and waiting for a disk.
        return (sum(ticks[:8]) - ticks[3] - ticks[4]) / os.sysconf("SC_CLK_TCK")
    return 0.0


def summary(lines: list[dict[str, Any]]) -> str:
    seconds = sorted(line["seconds"] for line in lines if "seconds" in line)
    standings = Counter(
        line.get("standing") or ("late" if "late" in line else "fault") for line in lines
    )
    words = ", ".join(f"{n} {name}" for name, n in sorted(standings.items()))
    if not seconds:
        return f"no verdict; {words}"
    median, ninth = statistics.median(seconds), seconds[int(0.9 * (len(seconds) - 1))]
    return f"median {median:.2f} s, 90% within {ninth:.2f} s; {words}"


def measure(options: argparse.Namespace, until: float) -> Iterator[str]:
    """Lines to print, as they are known."""
    count = max(options.count, options.alone, options.usual)
    rows = corpus.stratified(options.corpus, count)
    usual: list[tuple[float, str]] = []
    for row in rows[: options.usual]:
        if time.time() < until:
            usual.append(usual_seconds(row, min(PATIENCE, until - time.time())))
            print(
                f"  usual test, {row['problem']}: {usual[-1][0]:.2f} s, {usual[-1][1]}", flush=True
            )
    theirs = statistics.median(seconds for seconds, _ in usual) if usual else 0.0
    if usual:
        answers = ", ".join(f"{n} {name}" for name, n in Counter(a for _, a in usual).items())
        yield f"usual test, alone     {len(usual):4d} kernels, median {theirs:.2f} s; {answers}"
    for name, number, judges, lanes in (
        ("verdict, alone", options.alone, 1, options.lanes),
        ("verdict, in a pool", options.count, options.judges, 1),
    ):
        if not number or time.time() >= until:
            continue
        verdicts = Verdicts(options, judges, lanes, until)
        try:
            verdicts.make(rows[:number])
        finally:
            yield from verdicts.words(name)
            ours = [line["seconds"] for line in verdicts.lines if "seconds" in line]
            if theirs and ours:
                yield f"  verdict / usual test: {statistics.median(ours) / theirs:.2f} (medians)"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--corpus", type=Path, required=True)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--count", type=int, default=200, help="kernels through the pool")
    parser.add_argument("--alone", type=int, default=20, help="kernels one at a time")
    parser.add_argument("--usual", type=int, default=10, help="of these, given the usual test")
    parser.add_argument("--judges", type=int, default=os.cpu_count() or 2)
    parser.add_argument("--lanes", type=int, default=4, help="of a kernel that is judged alone")
    parser.add_argument("--budget", type=float, default=30.0, help="seconds of probes a verdict")
    parser.add_argument("--each", type=float, default=60.0, help="seconds a verdict may take")
    parser.add_argument("--runner", default="cuda", choices=("cuda", "interpret"))
    parser.add_argument("--wall", type=float, default=float("inf"), help="seconds of all")
    options = parser.parse_args()

    def ended(*_: Any) -> NoReturn:
        raise SystemExit(143)

    signal.signal(signal.SIGTERM, ended)
    for line in measure(options, time.time() + options.wall):
        print(line, flush=True)


if __name__ == "__main__":
    main()
