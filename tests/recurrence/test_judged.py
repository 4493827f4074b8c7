"""The recurrences before the judge: what it is told of them, and that it tells right from wrong."""

from __future__ import annotations

import importlib
import itertools
import sys
from pathlib import Path

import pytest
import torch
from torch import Tensor

from adjudge.frontends.kernelbench import KernelBenchProgram
from adjudge.inputs.sampler import Sampler
from adjudge.oracle import Oracle
from adjudge.program import Arguments
from adjudge.worker.client import Zygote

sys.path.insert(0, str(Path(__file__).parent / "judged"))
sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "benchmarks"))
import judge_recurrence
from planted import FAULTS, SCALAR, Fault, plant
from tasks import BY_NAME, MEMBERS, Member, contract, contract_path, reference

import gated_recurrence

NAMES = [member.name for member in MEMBERS]


def naive(member: Member, form: str, arguments: Arguments) -> list[Tensor]:
    """o and the final states of the member's own loop, in float64."""
    names = [*member.inputs, "state", *(["offsets"] if form == "packed" else [])]
    given = {
        name: x.double() if x.is_floating_point() else x
        for name, x in zip(names, arguments.args, strict=True)
    }
    unit = lambda x: x * torch.rsqrt(x.square().sum(-1, keepdim=True) + 1e-6)  # noqa: E731
    scope = {"torch": torch, "F": torch.nn.functional, "unit": unit, **given}
    # In float64, which the expressions' own casts would leave.
    made = {name: eval(text.replace(".float()", ""), scope) for name, text in member.made.items()}
    tensors = {name: given[name] for name in ("q", "k", "v")} | made
    step = getattr(importlib.import_module(f"gated_recurrence.{member.name}.naive"), member.name)
    if form == "dense":
        return list(step(**tensors, initial_state=given["state"]))
    parts = []
    for n, (first, end) in enumerate(itertools.pairwise(given["offsets"].tolist())):
        cut = {k: x if k == "log_decay" else x[:, first:end] for k, x in tensors.items()}
        parts.append(step(**cut, initial_state=given["state"][n : n + 1]))
    return [torch.cat([part[i] for part in parts], 1 - i) for i in (0, 1)]


@pytest.mark.parametrize("form", ["dense", "packed"])
@pytest.mark.parametrize("member", MEMBERS, ids=NAMES)
def test_a_reference_is_the_recurrence(member: Member, form: str) -> None:
    program = KernelBenchProgram(reference(member, form), member.name)
    for tokens in (0, 1, 70):
        arguments = program.arguments({**program.task.native, "TOKENS": tokens}, Sampler(tokens))
        make = lambda a=arguments: program.construct(a, seed=0, redrawn=False)  # noqa: E731
        found = Oracle(make, arguments, generic=True).exact
        for leaf, want in zip(found, naive(member, form, arguments), strict=True):
            # Up to 70 * 16 float64 terms of a sum (2**-53 each), and a triangular system's.
            torch.testing.assert_close(torch.from_numpy(leaf.data), want, rtol=1e-11, atol=1e-11)


@pytest.mark.parametrize("member", MEMBERS, ids=NAMES)
def test_contracts_are_those_of_the_table(member: Member) -> None:
    assert contract_path(member).read_text(encoding="utf-8") == contract(member)


#: What no machine has given a verdict on yet: runner/member/form/kind.
WAITING = {
    *(f"cuda/gated_delta_rule/{f}/honest" for f in ("dense", "packed", "gradients", "strong")),
    "cuda/delta_rule/packed/honest",
    *(
        f"cuda/{name}/{fault.native.form}/{fault.name}"
        for fault in FAULTS
        for name in SCALAR
        if fault.fits(BY_NAME[name], "cuda")
    ),
}
#: Convicted in float32 too, and not explained yet (docs/design/recurrence.md).
OPEN: dict[str, set[str]] = {}
#: What the native kernels must keep where they are convicted of a value (docs/design/recurrence.md).
BITS = ("nondeterministic", "stale-output", "retains-state", "mutates-input", "out-of-bounds")


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_a_native_fault_changes_the_package_and_no_more(fault: Fault, tmp_path: Path) -> None:
    right = Path(gated_recurrence.__file__).parent
    plant(fault, right, tmp_path)
    copy = tmp_path / "gated_recurrence"
    files = [x for x in right.rglob("*") if x.is_file() and "__pycache__" not in x.parts]
    changed = {
        str(x.relative_to(right / "native"))
        for x in files
        if x.read_bytes() != (copy / x.relative_to(right)).read_bytes()
    }
    assert changed == {patch.file for patch in fault.native.patches}
    for name in changed:
        if name.endswith(".py"):
            compile((copy / "native" / name).read_text(encoding="utf-8"), name, "exec")


def test_the_record_covers_every_member() -> None:
    record = judge_recurrence.record()
    held = {"/".join(judge_recurrence.key(line)) for line in record}
    asked = {job.name for runner in ("interpret", "cuda") for job in judge_recurrence.jobs(runner)}
    assert asked - held == WAITING
    page = (judge_recurrence.AUDITS / "recurrence.md").read_text(encoding="utf-8")
    assert page == judge_recurrence.page(record)


def test_the_record_acquits_the_members_and_convicts_what_is_planted() -> None:
    for line in judge_recurrence.record():
        name = "/".join(judge_recurrence.key(line))
        if name in OPEN:
            assert {v["gate"] for v in line["violations"]} == OPEN[name], line["reasons"]
        elif line["kind"] != judge_recurrence.HONEST:
            assert line["violations"], judge_recurrence.key(line)
        elif line["runner"] == "interpret" or line["form"] in ("dense", "packed"):
            assert line["standing"] == "sound", (judge_recurrence.key(line), line["reasons"])
        else:
            assert {line["findings"][gate] for gate in BITS} == {"pass"}, judge_recurrence.key(line)


@pytest.mark.parametrize(
    ("member", "gates"),
    [("gated_delta_rule", ("wrong-value",)), ("retention", ("wrong-value", "wrong-gradient"))],
)
def test_a_member_is_acquitted(member: str, gates: tuple[str, ...], zygote: Zygote) -> None:
    job = judge_recurrence.Job(judge_recurrence.HONEST, member, "dense", "interpret")
    line = judge_recurrence.judge(job, zygote, gates=gates, budget=3.0, examine=False)
    assert not line["violations"], line["reasons"]
    assert line["findings"]["wrong-value"] == "pass", line["reasons"]


def test_sums_of_gates_in_bfloat16_are_convicted(zygote: Zygote) -> None:
    fault = next(f for f in FAULTS if f.name == "G in bfloat16")
    job = judge_recurrence.Job(fault.name, "retention", fault.form, "interpret")
    line = judge_recurrence.judge(job, zygote, examine=False)
    assert {v["gate"] for v in line["violations"]} == set(fault.gates), line["reasons"]
