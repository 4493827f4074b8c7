"""adjudge verify"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from adjudge.cli import common


def verify(
    candidate: Path,
    /,
    *,
    reference: Path | None = None,
    contract: Path | None = None,
    waivers: Path | None = None,
    gates: Annotated[str, Parameter(name=["--gates", "-g"])] = "",
    budget: str = "",
    fast: bool = False,
    required: str = "",
    scope: common.ScopeName = "extended",
    json: Annotated[Path | None, Parameter(allow_leading_hyphen=True)] = None,
    isolation: common.Isolation = "full",
    runner: common.RunnerName = "interpret",
    chip: Annotated[tuple[str, ...], Parameter(name=["--chip", "-c"])] = (),
    large: int | None = None,
    deep: bool = False,
    verbose: Annotated[bool, Parameter(name=["--verbose", "-v"])] = False,
) -> int:
    """Judge a candidate against its reference.

    Exit codes: 0 clean, 1 a violation that no waiver accepts, 2 a mistake of yours (a waiver that has
    expired, or matches nothing, is one), 3 a fault of ours, or inconclusive.

    Parameters
    ----------
    candidate
        File that defines ModelNew. It runs in a sandboxed process only. In the interpreter, compilers
        that are present are asked too: a kernel that none accepts for any chip is a violation.
    reference
        File that defines Model, get_inputs and get_init_inputs; reference.py beside the candidate if
        not given. It is trusted, and executed here.
    contract
        File of what is promised beyond the reference; see `adjudge contract init`.
    waivers
        File of violations that are accepted, with reason and expiry date.
    gates
        Comma-separated gates to run; all of them if not given.
    budget
        Time for the probes together ("5s", "500ms", "2m", or seconds); cheap and decisive gates run
        first, and what is left out is said.
    fast
        Stop at the first violation that no waiver accepts; the gates that are then not asked say so.
    required
        Precision regime the candidate must meet; derived from the reference if not given.
    scope
        "declared" ends with 0 for a candidate that is broken only beyond the declared scope.
    json
        Also write the verdict's record to this file; "-" writes it to standard output instead of the
        report.
    isolation
        "none" runs the candidate without a sandbox: for code you trust, on systems without Landlock.
    runner
        Where the candidate runs: in the interpreter, on any machine, or on the first GPU ("cuda").
    chip
        Also compile for this chip (sm_80, sm_90, sm_100), where a compiler is present, and note what is
        asked of its registers and shared memory; no verdict rests on it. May be repeated.
    large
        Triton's program instances that a run past 65,536 rows may launch in the interpreter, where each
        takes about a millisecond; 3000 if not given. 0 makes no such run. What was not run is said.
    deep
        Also run the candidate under compute-sanitizer, on a GPU and without a sandbox (--runner cuda
        --isolation none): accesses outside of every allocation convict, races and uninitialised reads
        are noted, each with kernel and line.
    verbose
        Also show provenance and the seconds each stage took.
    """
    from rich.console import Console

    from adjudge.errors import UsageError
    from adjudge.gates import gate as gate_named
    from adjudge.static.chips import chip as chip_named
    from adjudge.worker.launch import Launch

    names = tuple(name.strip() for name in gates.split(",") if name.strip())
    if gates and not names:
        raise UsageError(f"{gates!r} names no gate", todo="`adjudge explain` lists them.")
    for name in names:
        gate_named(name)
    if deep:
        from adjudge.deep.run import check

        check(runner, isolation)
    seconds = common.seconds_of(budget)
    chips = tuple(chip_named(name) for name in chip)
    promised = common.contract_of(contract)
    accepted = common.waivers_of(waivers)
    reference = common.reference_of(candidate, reference, promised)
    if json is not None and not json.parent.is_dir():
        raise UsageError("there is no folder to write the record to", where=str(json.parent))
    with (
        common.progress(Console(stderr=True)) as advance,
        Launch(isolation=isolation, runner=runner) as launch,
    ):
        advance("loading torch", 0, 0)
        lanes = common.lanes_of(runner)
        from adjudge.frontends import kernelbench
        from adjudge.judge import scale
        from adjudge.judge.verify import Options
        from adjudge.judge.verify import verify as judge
        from adjudge.worker.client import Zygote

        advance("reading the reference", 0, 0)
        program, under_judgement = kernelbench.load(candidate, reference)
        options = Options(
            budget=seconds,
            fast=fast,
            gates=names or None,
            isolation=isolation,
            runner=runner,
            deep=deep,
            lanes=lanes,
            zygote=Zygote(launch),
            required=required,
            progress=advance,
            contract=promised,
            waivers=accepted,
            chips=chips,
            compiled=True,
            large=scale.INSTANCES if large is None else large,
        )
        verdict = judge(program, under_judgement, options)
    from adjudge.record import to_json

    code = common.settled(common.exit_code(verdict, scope), verdict, accepted, candidate)
    if str(json) == "-":
        print(to_json(verdict))
        return code
    common.show(verdict, candidate, reference, verbose=verbose, contract=contract)
    if json is not None:
        try:
            json.write_text(to_json(verdict) + "\n", encoding="utf-8")
        except OSError as error:
            raise UsageError(f"the record cannot be written: {error}", where=str(json)) from error
    return code
