"""adjudge demo"""

from __future__ import annotations

from pathlib import Path


def demo(folder: Path = Path("examples"), /) -> int:
    """Judge every pair in a folder of examples: the correct half, then the broken one.

    Parameters
    ----------
    folder
        Holds one folder an example, each with reference.py, correct.py and broken.py.
    """
    from rich.console import Console

    from adjudge.cli import CLEAN, VIOLATION, common
    from adjudge.contract import Standing
    from adjudge.errors import UsageError
    from adjudge.worker.launch import Launch

    examples = sorted(path.parent for path in folder.glob("*/reference.py"))
    if not examples:
        raise UsageError("there is no example here", where=str(folder))
    console = Console(highlight=False)
    surprises = 0
    with common.progress(Console(stderr=True)) as advance, Launch() as launch:
        advance("loading torch", 0, 0)
        from adjudge.frontends import kernelbench
        from adjudge.judge.verify import Options, verify
        from adjudge.report.terminal import verdict_line
        from adjudge.worker.client import Zygote

        with Zygote(launch) as zygote:
            options = Options(zygote=zygote, progress=advance)
            for example in examples:
                console.rule(example.name, align="left")
                for half, expected in (("correct", True), ("broken", False)):
                    path = example / f"{half}.py"
                    program, candidate = kernelbench.load(path, example / "reference.py")
                    verdict = verify(program, candidate, options)
                    if verdict.violations:
                        common.show(verdict, path, example / "reference.py", table=False)
                    else:
                        console.print(verdict_line(verdict))
                    surprises += (verdict.standing is Standing.SOUND) != expected
    if surprises:
        console.print(
            f"{surprises} verdicts are not what the example's name says", style="bold red"
        )
    return VIOLATION if surprises else CLEAN
