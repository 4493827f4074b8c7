"""Speed of a verdict: command line, whole verdict cold and warm, memory, probes per second.

    python benchmarks/verify.py [CANDIDATE --reference REFERENCE]

Without arguments the bundled softmax example is judged. Each figure is printed with the machine it
was measured on; wall-clock times are medians of three.
"""

from __future__ import annotations

import argparse
import platform
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("candidate", type=Path, nargs="?", default=SOFTMAX / "correct.py")
    parser.add_argument("--reference", type=Path, default=SOFTMAX / "reference.py")
    options = parser.parse_args()
    print(f"{time.strftime('%Y-%m-%d')}  {platform.machine()}  {platform.python_version()}")
    print(f"adjudge --help             {median_seconds(lambda: run_cli('--help')):6.2f} s")
    shell = ("verify", str(options.candidate), "--reference", str(options.reference))
    print(f"verdict from the shell     {median_seconds(lambda: run_cli(*shell)):6.2f} s")

    from adjudge.frontends import kernelbench
    from adjudge.judge.verify import Options, verify
    from adjudge.worker.client import Zygote

    program, candidate = kernelbench.load(options.candidate, options.reference)
    with Zygote.start(isolation="full", face="cuda", allow_compiler=False) as zygote:
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
