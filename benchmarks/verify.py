"""Speed of a verdict: command line, whole verdict cold and warm, memory, probes per second, and `--fast`
on every bundled broken kernel.

    python benchmarks/verify.py [CANDIDATE --reference REFERENCE]
    python benchmarks/verify.py --fast-only

Without arguments the bundled softmax example is judged. Each figure is printed with the machine it
was measured on; wall-clock times are medians of three. Warm means that a zygote, which has imported
torch and triton, is running, and that the judge has given a verdict before; a candidate's own worker
is started anew each time. Seconds of CPU are the judge's and its workers' together, the least of
three: on a busy machine they say more than the clock does.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import platform
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from adjudge.contract import Verdict
from adjudge.frontends import kernelbench
from adjudge.judge.runner import Runner
from adjudge.judge.verify import Options, verify
from adjudge.worker.client import Zygote

ROOT = Path(__file__).resolve().parent.parent
SOFTMAX = ROOT / "examples" / "softmax_tail"


def median_seconds(action: Callable[[], object], times: int = 3) -> float:
    seconds = []
    for _ in range(times):
        start = time.perf_counter()
        action()
        seconds.append(time.perf_counter() - start)
    return statistics.median(seconds)


def run_cli(*arguments: str) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(
        [sys.executable, "-m", "adjudge", *arguments], capture_output=True, check=False
    )


def started() -> Zygote:
    return Zygote.start(isolation="full", face="cuda", allow_compiler=False)


class Workers:
    """Seconds of CPU of a candidate's processes, noted before they are ended."""

    def __init__(self) -> None:
        self.seconds = 0.0
        close = Runner.close

        def noted(runner: Runner) -> None:
            self.seconds = _worker_seconds()
            close(runner)

        Runner.close = noted  # type: ignore[method-assign]


def _worker_seconds() -> float:
    """Of every process in the session of a child of this one (the zygote's), but for that child."""
    rows = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            # proc(5), from the third field on: state, parent, group, session; 14 and 15 are the times.
            fields = path.read_text().rpartition(")")[2].split()
            rows[int(path.parent.name)] = [int(fields[n]) for n in (1, 3, 11, 12)]
    zygotes = {pid for pid, (parent, *_) in rows.items() if parent == os.getpid()}
    ticks = sum(
        user + system
        for pid, (_, session, user, system) in rows.items()
        if session in zygotes and pid not in zygotes
    )
    return ticks / os.sysconf("SC_CLK_TCK")


def fast_table() -> None:
    """Prints what `--fast` takes for each broken kernel under examples/, and which gate convicts."""
    print(f"{'--fast, warm':24s} {'wall':>6s} {'CPU':>6s} {'probes':>6s}  gate")
    with started() as zygote:
        workers = Workers()
        loaded = kernelbench.load(SOFTMAX / "correct.py", SOFTMAX / "reference.py")
        verify(*loaded, Options(zygote=zygote, fast=True))
        for folder in sorted(path.parent for path in (ROOT / "examples").glob("*/reference.py")):
            runs = [fast_run(folder, zygote, workers) for _ in range(3)]
            wall = statistics.median(run.wall for run in runs)
            cpu = min(run.cpu for run in runs)
            verdict = runs[-1].verdict
            names = ", ".join(finding.gate for finding in verdict.violations) or "none"
            print(f"{folder.name:24s} {wall:4.2f} s {cpu:4.2f} s {verdict.probes:6d}  {names}")


class Run(NamedTuple):
    wall: float
    cpu: float
    verdict: Verdict


def fast_run(folder: Path, zygote: Zygote, workers: Workers) -> Run:
    program, candidate = kernelbench.load(folder / "broken.py", folder / "reference.py")
    start, judge = time.perf_counter(), time.process_time()
    verdict = verify(program, candidate, Options(zygote=zygote, fast=True))
    wall = time.perf_counter() - start
    return Run(wall, time.process_time() - judge + workers.seconds, verdict)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("candidate", type=Path, nargs="?", default=SOFTMAX / "correct.py")
    parser.add_argument("--reference", type=Path, default=SOFTMAX / "reference.py")
    parser.add_argument("--fast-only", action="store_true", help="print the table of --fast only")
    options = parser.parse_args()
    print(f"{time.strftime('%Y-%m-%d')}  {platform.machine()}  {platform.python_version()}")
    if not options.fast_only:
        whole(options.candidate, options.reference)
    fast_table()


def whole(path: Path, reference: Path) -> None:
    print(f"adjudge --help             {median_seconds(lambda: run_cli('--help')):6.2f} s")
    shell = ("verify", str(path), "--reference", str(reference))
    print(f"verdict from the shell     {median_seconds(lambda: run_cli(*shell)):6.2f} s")

    program, candidate = kernelbench.load(path, reference)
    with started() as zygote:
        verify(program, candidate, Options(zygote=zygote))
        verdicts = []
        warm = median_seconds(
            lambda: verdicts.append(verify(program, candidate, Options(zygote=zygote)))
        )
    verdict = verdicts[-1]
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024 / 1024
    print(f"verdict, warm parent       {warm:6.2f} s   {verdict.standing.value}")
    print(f"judge's peak memory        {peak:6.2f} GiB")
    print(
        f"probes                     {verdict.probes:6d}     {verdict.probes / warm:.0f} a second"
    )
    print(f"probes shared between gates{verdict.shared:6d}")
    for name, seconds in sorted(verdict.timings, key=lambda item: -item[1]):
        print(f"  {name:24s} {seconds:6.2f} s")


if __name__ == "__main__":
    main()
