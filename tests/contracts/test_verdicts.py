"""What a contract declares acts on the verdict."""

from __future__ import annotations

from pathlib import Path

import pytest

from adjudge.contract import Standing, Verdict
from adjudge.contracts.against import check
from adjudge.contracts.draft import draft
from adjudge.contracts.file import load
from adjudge.errors import UsageError
from adjudge.frontends import kernelbench
from adjudge.judge.verify import Options, verify
from adjudge.worker.client import Zygote

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
SOFTMAX = (EXAMPLES / "softmax_tail" / "reference.py").read_text()
HEAD = "import torch\n\n\nclass ModelNew(torch.nn.Module):\n    def forward(self, x{}):\n"


def judged(
    folder: Path,
    zygote: Zygote,
    body: str,
    change: tuple[str, str],
    more: str = "",
    given: str = "",
) -> Verdict:
    source = HEAD.format(given) + "".join(f"        {line}\n" for line in body.splitlines())
    program, candidate = kernelbench.from_source(SOFTMAX, source, "k")
    text = draft(program)
    assert change[0] in text
    path = folder / "contract.toml"
    path.write_text(text.replace(*change) + more, encoding="utf-8")
    options = Options(
        zygote=zygote,
        examine=False,
        contract=load(path),
        gates=("wrong-value", "shape-dependent", "stale-output", "retains-state", "mutates-input"),
    )
    return verify(program, candidate, options)


@pytest.mark.parametrize(
    ("body", "sound"),
    [
        ("out.copy_(torch.softmax(x, -1))", True),
        ("out[..., :-1].copy_(torch.softmax(x, -1)[..., :-1])", False),
    ],
)
def test_outputs_are_read_from_the_callers_memory(
    tmp_path: Path, zygote: Zygote, body: str, sound: bool
) -> None:
    change = ("[postcondition]", '[postcondition]\ndestinations = ["out"]')
    verdict = judged(tmp_path, zygote, body, change, given=", out")
    assert (verdict.standing is Standing.SOUND) == sound, [f.reason for f in verdict.violations]


@pytest.mark.parametrize(("rtol", "sound"), [("0.01", True), ("0.0001", False)])
def test_a_looser_tolerance_accepts_what_lies_within_it(
    tmp_path: Path, zygote: Zygote, rtol: str, sound: bool
) -> None:
    more = f'\n[[tolerance.looser]]\noutput = "output"\nreason = "known"\nrtol = {rtol}\n'
    body = "return torch.softmax(x, -1) * 1.001"
    verdict = judged(tmp_path, zygote, body, ("", ""), more)
    assert (verdict.standing is Standing.SOUND) == sound
    assert any(promise.reason == "known" for promise in verdict.promises)


@pytest.mark.parametrize(("rtol", "sound"), [("0.01", True), ("0.0001", False)])
def test_a_looser_tolerance_of_a_gradient_accepts_what_lies_within_it(
    tmp_path: Path, zygote: Zygote, rtol: str, sound: bool
) -> None:
    source = """
import torch


class Coarse(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        y = torch.softmax(x, -1)
        ctx.save_for_backward(y)
        return y

    @staticmethod
    def backward(ctx, g):
        (y,) = ctx.saved_tensors
        return 1.001 * y * (g - (g * y).sum(-1, keepdim=True))


class ModelNew(torch.nn.Module):
    def forward(self, x):
        return Coarse.apply(x)
"""
    program, candidate = kernelbench.from_source(SOFTMAX, source, "k")
    more = f'\n[[tolerance.gradients]]\nof = "args[0]"\nreason = "known"\nrtol = {rtol}\n'
    path = tmp_path / "contract.toml"
    path.write_text(draft(program) + more, encoding="utf-8")
    options = Options(
        zygote=zygote,
        examine=False,
        contract=load(path),
        gates=("wrong-value", "wrong-gradient"),
    )
    verdict = verify(program, candidate, options)
    assert [f.gate for f in verdict.violations] == ([] if sound else ["wrong-gradient"])
    assert any(promise.reason == "known" for promise in verdict.promises)
    if not sound:
        (finding,) = verdict.violations
        assert finding.violation is not None
        assert "0.0001 |expected|" in finding.violation.bound


ODD = 'if x.shape[-1] % 2:\n    raise ValueError("width must be even")\nreturn torch.softmax(x, -1)'


def test_a_refusal_within_the_scope_is_a_violation_unless_allowed(
    tmp_path: Path, zygote: Zygote
) -> None:
    verdict = judged(tmp_path, zygote, ODD, ("", ""))
    assert verdict.standing is Standing.VIOLATING
    allowed = '\n[[scope.refusals]]\nexception = "ValueError"\nmessage = "even"\n'
    verdict = judged(tmp_path, zygote, ODD, ("", ""), allowed)
    assert verdict.standing is Standing.SOUND, [f.reason for f in verdict.violations]


def test_what_no_gate_judges_is_said(tmp_path: Path, zygote: Zygote) -> None:
    change = ("[postcondition]", "[postcondition]\nbatch_invariant = true")
    verdict = judged(tmp_path, zygote, "return torch.softmax(x, -1)", change)
    (promise,) = (p for p in verdict.promises if p.name == "postcondition.batch_invariant")
    assert promise.waits or "schedule-dependent" in promise.judged


TWO = "rows, columns = x.shape\nreturn torch.softmax(x, -1)"


def test_a_refused_rank_is_a_violation_where_it_is_declared(tmp_path: Path, zygote: Zygote) -> None:
    assert judged(tmp_path, zygote, TWO, ("", "")).standing is Standing.SOUND
    verdict = judged(tmp_path, zygote, TWO, ("[scope]", "[scope]\nranks = [3]"))
    assert verdict.standing is Standing.VIOLATING
    (finding,) = verdict.violations
    assert finding.gate == "shape-dependent"
    assert finding.violation is not None
    assert finding.violation.probe.rank == 3
    assert any(promise.name == "scope.ranks" for promise in verdict.promises)


def test_a_rank_that_the_reference_does_not_take_cannot_be_declared(tmp_path: Path) -> None:
    program = kernelbench.KernelBenchProgram(SOFTMAX.replace("dim=-1", "dim=1"), "softmax")
    assert "dim=1" in program.task.source
    path = tmp_path / "contract.toml"
    path.write_text(draft(program).replace("[scope]", "[scope]\nranks = [3]"), encoding="utf-8")
    with pytest.raises(UsageError, match=r"does not take inputs of rank 3: .*leading dimensions"):
        check(load(path), program)
