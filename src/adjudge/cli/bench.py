"""adjudge bench"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from adjudge.cli import common


def bench(
    reference: Path,
    candidate: Path,
    /,
    *,
    gates: Annotated[str, Parameter(name=["--gates", "-g"])] = "",
    budget: str = "",
    scope: common.ScopeName = "extended",
    json: Path | None = None,
    isolation: common.Isolation = "full",
    runner: common.RunnerName = "cuda",
    compiled: bool = True,
    roofline: bool = True,
) -> int:
    """Judge a candidate, then time it in a way that it cannot fake.

    Exit codes: 0 clean, 1 a violation, in the verdict or in an answer of a timed call, 2 a mistake of
    yours (no GPU is one), 3 a fault of ours, or no speed could be given.

    Parameters
    ----------
    reference
        File that defines Model, get_inputs and get_init_inputs. It is trusted.
    candidate
        File that defines ModelNew. It runs in a sandboxed process only.
    gates
        Comma-separated gates of the verdict; all of them if not given.
    budget
        Time for the verdict's probes together ("5s", "2m").
    scope
        "declared" ends with 0 for a candidate that is broken only beyond the declared scope.
    json
        Append the record to this file, one line.
    isolation
        "none" runs the candidate without a sandbox: for code you trust.
    runner
        "cuda" is the first GPU; "interpret" times plain PyTorch on this CPU, and nothing else.
    compiled
        Also time what torch.compile makes of the reference.
    roofline
        Also measure this machine's ceilings.
    """
    from rich.console import Console

    from adjudge.cli import FAULT, VIOLATION
    from adjudge.errors import UsageError
    from adjudge.gates import gate as gate_named
    from adjudge.worker.launch import Launch

    names = tuple(name.strip() for name in gates.split(",") if name.strip())
    for name in names:
        gate_named(name)
    seconds = common.seconds_of(budget)
    if not candidate.exists():
        raise UsageError("there is no such file", where=str(candidate))
    if json is not None and not json.parent.is_dir():
        raise UsageError("there is no folder to write the record to", where=str(json.parent))
    with (
        common.progress(Console(stderr=True)) as advance,
        Launch(isolation=isolation, runner=runner) as launch,
        Launch(isolation=isolation, runner=runner, face="cpu", allow_compiler=True) as timing,
    ):
        advance("loading torch", 0, 0)
        lanes = common.lanes_of(runner)
        from adjudge.bench.bench import Settings
        from adjudge.bench.bench import bench as measure
        from adjudge.bench.record import append
        from adjudge.frontends import kernelbench
        from adjudge.judge.verify import Options
        from adjudge.worker.client import Zygote

        program, under_judgement = kernelbench.load(candidate, reference)
        options = Options(
            budget=seconds,
            gates=names or None,
            isolation=isolation,
            runner=runner,
            lanes=lanes,
            zygote=Zygote(launch),
            progress=advance,
        )
        settings = Settings(compiled=compiled, roofline=roofline, zygote=Zygote(timing))
        found = measure(program, under_judgement, options, settings)
    from adjudge.report.bench import benchmark_report

    common.show(found.verdict, candidate, reference, table=False)
    Console(highlight=False).print(benchmark_report(found), crop=False)
    if json is not None:
        try:
            append(found, json)
        except OSError as error:
            raise UsageError(f"the record cannot be written: {error}", where=str(json)) from error
    code = VIOLATION if found.wrong else common.exit_code(found.verdict, scope)
    return FAULT if found.refused and code == 0 else code
