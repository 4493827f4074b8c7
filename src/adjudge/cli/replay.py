"""adjudge replay"""

from __future__ import annotations

from pathlib import Path

from adjudge.cli import common


def replay(
    code: str,
    candidate: Path,
    /,
    *,
    reference: Path | None = None,
    contract: Path | None = None,
    isolation: common.Isolation = "full",
    runner: common.RunnerName = "interpret",
) -> int:
    """Run one violation again, in a fresh process, on the same bytes.

    Parameters
    ----------
    code
        The line that a report prints beside a violation.
    candidate
        The candidate that was judged.
    reference
        Its reference; reference.py beside the candidate if not given.
    contract, isolation, runner
        As for verify.
    """
    from rich.console import Console

    from adjudge.cli import CLEAN, VIOLATION
    from adjudge.inputs.codec import decode_recipe
    from adjudge.worker.launch import Launch

    decode_recipe(code)
    promised = common.contract_of(contract)
    reference = common.reference_of(candidate, reference, promised)
    with (
        common.progress(Console(stderr=True)) as advance,
        Launch(isolation=isolation, runner=runner) as launch,
    ):
        advance("loading torch", 0, 0)
        from adjudge.frontends import kernelbench
        from adjudge.judge.replay import replay as judge
        from adjudge.judge.verify import Options
        from adjudge.worker.client import Zygote

        program, under_judgement = kernelbench.load(candidate, reference)
        options = Options(
            isolation=isolation,
            runner=runner,
            progress=advance,
            zygote=Zygote(launch),
            contract=promised,
        )
        result = judge(code, program, under_judgement, options)
    from adjudge.report.terminal import replay_report

    Console(highlight=False).print(replay_report(result))
    return CLEAN if result.finding is None else VIOLATION
