"""Arguments and state that the reference writes: what is asked of them, and what is compared."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

import adjudge
from adjudge.contract import Finding, Scope, Standing, Verdict
from adjudge.contracts.draft import draft
from adjudge.contracts.file import load
from adjudge.frontends import kernelbench
from adjudge.judge.cases import CaseBuilder
from adjudge.judge.replay import replay
from adjudge.judge.verify import Options, verify
from adjudge.observation import Observation, OutputTensor, Status
from adjudge.oracle.finals import FinalOracle
from adjudge.probe import Probe, sizes_of
from adjudge.program import Arguments, OutsideDomain
from adjudge.worker.client import Zygote
from adjudge.worker.images import TensorImage

TASK = """
import torch

rows = 4
cols = 6

class NAME(torch.nn.Module):
    def __init__(self):
        super().__init__()
        INIT

    def forward(self, x, y):
        BODY

def get_inputs():
    return [torch.randn(rows, cols), torch.randn(rows, cols)]

def get_init_inputs():
    return []
"""
BUFFER = "self.register_buffer('mean', torch.zeros(cols))"
NORM = "self.bn = torch.nn.BatchNorm1d(cols)"


def source(body: str, name: str = "Model", init: str = "pass") -> str:
    body = "\n        ".join(body.strip().splitlines())
    return TASK.replace("NAME", name).replace("INIT", init).replace("BODY", body)


def builder(body: str) -> CaseBuilder:
    return CaseBuilder(kernelbench.KernelBenchProgram(source(body), "task"), by_name=False)


def images(build: CaseBuilder, layout: str) -> list[TensorImage]:
    probe = Probe(sizes=sizes_of(build.program.task.native), layout=layout)
    return list(build.build(probe).request.calls[-1].args)


@pytest.mark.parametrize("layout", ["expanded", "overlapping"])
@pytest.mark.parametrize(
    "body", ["x.add_(y)\nreturn x", "x.abs_().relu_()\nreturn y", "x[:2] = y[:2]\nreturn x.sum()"]
)
def test_what_is_written_shares_no_memory(body: str, layout: str) -> None:
    written, other = images(builder(body), layout)
    assert written.strides == (6, 1)
    assert other.strides in ((0, 1), (3, 1))


@pytest.mark.parametrize("layout", ["transposed", "sliced", "padded", "offset", "misaligned"])
def test_what_is_written_still_lies_otherwise(layout: str) -> None:
    found = images(builder("x.add_(y)\nreturn x"), layout)
    assert all(image.strides != (6, 1) or image.offset for image in found)


@pytest.mark.parametrize("layout", ["expanded", "overlapping"])
def test_a_declared_argument_shares_no_memory_either(layout: str) -> None:
    build = builder("return x + y")
    declared = replace(build.program.task.declared, in_place=("args[0]",))
    build.program._task = replace(build.program.task, declared=declared)  # type: ignore[attr-defined]
    assert [image.strides == (6, 1) for image in images(build, layout)] == [True, False]


def test_where_all_is_written_nothing_is_asked() -> None:
    build = builder("x.add_(y)\ny.zero_()\nreturn x")
    with pytest.raises(OutsideDomain, match="overlapping"):
        images(build, "overlapping")


@pytest.mark.parametrize(
    ("body", "layout", "aliases"),
    [
        ("return x.mT.contiguous()", "contiguous", False),
        ("return x.mT.contiguous()", "transposed", True),
        ("return x.mT.contiguous()", "sliced", False),
        ("return x.contiguous()", "contiguous", True),
        ("return x.contiguous()", "misaligned", True),
        ("return x.contiguous()", "far", False),
        ("return x.contiguous()", "expanded", False),
        ("return x.contiguous()", "overlapping", False),
        ("return x + y", "transposed", False),
    ],
)
def test_a_copy_that_makes_contiguous_is_none_where_a_tensor_is_so(
    body: str, layout: str, aliases: bool
) -> None:
    build = builder(body)
    assert (
        build.hands_on(Probe(sizes=sizes_of(build.program.task.native), layout=layout)) is aliases
    )


def test_a_reference_that_aliases_at_some_sizes_is_sound(zygote: Zygote) -> None:
    """With one column, the transpose lies as a contiguous tensor does."""
    text = source("return x.mT.contiguous() + 0")
    plain, copying = text.replace(" + 0", ""), text.replace("Model", "ModelNew")
    options = Options(zygote=zygote, examine=False, gates=("wrong-value", "retains-state"))
    for reference, candidate, sound in (
        (plain, plain.replace("Model", "ModelNew"), True),
        (plain, copying, True),
        (text, plain.replace("Model", "ModelNew"), False),
    ):
        verdict = verify(*kernelbench.from_source(reference, candidate, "mT"), options)
        assert (not verdict.violations) is sound, verdict.findings


@pytest.mark.parametrize(
    ("body", "names"),
    [
        ("x.add_(y)\nreturn x", ("args[0]",)),
        # Nothing changes, and it is written all the same.
        ("y.clamp_(-1e9, 1e9)\nreturn x", ("args[1]",)),
        ("return x + y", ()),
    ],
)
def test_what_is_asked_for_is_what_the_reference_writes(body: str, names: tuple[str, ...]) -> None:
    build = builder(body)
    request = build.build(Probe(sizes=sizes_of(build.program.task.native))).request
    assert request.finals == names


def test_state_is_asked_for_by_name_and_after_one_call() -> None:
    text = source("self.mean += x.mean(0)\nreturn x", init=BUFFER)
    program = kernelbench.KernelBenchProgram(text, "task")
    probe = Probe(sizes=sizes_of(program.task.native))
    asked = [
        CaseBuilder(program, by_name=by_name).build(p).request.state
        for by_name, p in (
            (True, probe),
            (False, probe),
            (True, replace(probe, history=("same",))),
        )
    ]
    assert asked == [("mean",), (), ()]


def test_a_running_mean_may_be_infinite_or_nan_and_no_number() -> None:
    """A plain sum gives the one, Welford's recurrence, by which a GPU normalises, the other."""
    norm = torch.nn.BatchNorm1d(3)
    x = torch.randn(4, 3, generator=torch.Generator().manual_seed(0))
    x[1, 0] = torch.inf
    oracle = FinalOracle(
        lambda: copy.deepcopy(norm), Arguments(args=(x,)), generic=False, names=["running_mean"]
    )
    mean = oracle.native[0].data
    assert mean[0] == np.inf
    outcomes = []
    for got in (np.inf, np.nan, 3.0):
        data = np.where(np.isinf(mean), np.float32(got), mean)
        held = OutputTensor(
            path="final running_mean", data=data, dtype="float32", strides=(1,), device="cpu"
        )
        seen = Observation(status=Status.ANSWERED, state=(held,))
        found = oracle.compare(oracle.left_behind(seen), "fp32")
        outcomes.append("class" if found.outcome == "class" else "ok")
    assert outcomes == ["ok", "ok", "class"]


def compared(body: str, left: Callable[[torch.Tensor, torch.Tensor], torch.Tensor]) -> str:
    """The outcome where args[0] holds `left` after the call."""
    build = builder(body)
    probe = Probe(sizes=sizes_of(build.program.task.native))
    arguments = build.build(probe).arguments
    content = left(*(t.clone() for t in arguments.args)).numpy()
    held = OutputTensor(
        path="final args[0]", data=content, dtype="float32", strides=(6, 1), device="cpu"
    )
    oracle = build.final_oracle(probe, arguments, generic=True)
    seen = oracle.left_behind(Observation(status=Status.ANSWERED, finals=(held,)))
    return oracle.compare(seen, "fp32").outcome


def test_what_is_left_behind_is_held_to_the_envelope() -> None:
    body = "x.copy_(torch.softmax(x, -1))\nreturn y"

    def by_hand(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        e = torch.exp(x - x.amax(-1, keepdim=True))
        return e * (1 / e.sum(-1, keepdim=True))

    assert compared(body, by_hand) in ("within", "equal")
    assert compared(body, lambda x, y: by_hand(x, y).bfloat16().float()) == "value"
    assert compared(body, lambda x, y: x) == "value"
    assert compared(body, lambda x, y: by_hand(x, y).log().log()) == "class"


def judged(zygote: Zygote, reference: str, candidate: str, *gates: str) -> Verdict:
    program, found = kernelbench.from_source(reference, candidate, "in_place")
    return verify(program, found, Options(zygote=zygote, examine=False, gates=gates))


def violation(verdict: Verdict) -> Finding:
    assert len(verdict.violations) == 1, [(f.gate, f.reason) for f in verdict.violations]
    return verdict.violations[0]


GATES = ("wrong-value", "mutates-input", "retains-state", "nondeterministic", "stale-output")


def test_an_argument_that_is_not_updated_convicts_and_replays(zygote: Zygote) -> None:
    reference = source("x.add_(y)\nreturn 2 * x")
    honest = source("r = y + x\nx.copy_(r)\nreturn r + r", "ModelNew")
    assert judged(zygote, reference, honest, *GATES).standing is Standing.SOUND
    stale = source("return 2 * (x + y)", "ModelNew")
    finding = violation(judged(zygote, reference, stale, *GATES))
    assert (finding.gate, finding.scope) == ("wrong-value", Scope.DECLARED)
    found = finding.violation
    assert found is not None
    assert found.where == "final args[0]"
    assert found.index == (0, 0)
    assert found.expected != found.got
    assert found.message.startswith("args[0] does not hold what the reference leaves in it")
    program, candidate = kernelbench.from_source(reference, stale, "in_place")
    again = replay(found.replay, program, candidate, Options(zygote=zygote, examine=False))
    assert again.finding is not None
    assert again.same_inputs
    assert again.same_outputs


def test_an_argument_that_is_updated_once_convicts(zygote: Zygote) -> None:
    reference = source("x.add_(y)\nreturn 2 * x")
    once = source(
        "self.n = getattr(self, 'n', 0) + 1\nr = x + y\nif self.n == 1: x.copy_(r)\nreturn 2 * r",
        "ModelNew",
    )
    finding = violation(judged(zygote, reference, once, "wrong-value", "retains-state"))
    assert finding.gate == "retains-state"
    assert finding.violation is not None
    assert finding.violation.where == "final args[0]"


BY_HAND = """
m = x.mean(0)
v = ((x - m) ** 2).mean(0)
n = x.shape[0]
self.bn.running_mean.lerp_(m, 0.1)
self.bn.running_var = 0.9 * self.bn.running_var + 0.1 * v * n / max(n - 1, 1)
self.bn.num_batches_tracked += 1
return ((x - m) / torch.sqrt(v + self.bn.eps) * self.bn.weight + self.bn.bias) * y
"""
#: What goes wrong with the running statistics, and the buffer that shows it.
LOST = {
    " * n / max(n - 1, 1)": "bn.running_var",
    "self.bn.num_batches_tracked += 1": "bn.num_batches_tracked",
}


def test_running_statistics_are_compared(zygote: Zygote) -> None:
    reference = source("return self.bn(x) * y", init=NORM)
    gates = ("wrong-value", "retains-state", "mutates-input")
    verdict = judged(zygote, reference, source(BY_HAND, "ModelNew", NORM), *gates)
    assert verdict.standing is Standing.SOUND, [(f.gate, f.reason) for f in verdict.violations]
    for part, name in LOST.items():
        broken = source(BY_HAND.replace(part, ""), "ModelNew", NORM)
        finding = violation(judged(zygote, reference, broken, "wrong-value"))
        assert finding.violation is not None
        assert finding.violation.where == f"final {name}"


def test_state_that_the_candidate_has_not_is_noted(zygote: Zygote) -> None:
    reference = source("self.mean += x.mean(0)\nreturn x + y", init=BUFFER)
    without = source("return x + y", "ModelNew")
    verdict = judged(zygote, reference, without, "wrong-value", "mutates-input")
    assert verdict.standing is Standing.SOUND
    notes = next(f.notes for f in verdict.findings if f.gate == "mutates-input")
    assert any(note.startswith("mean: written by the reference") for note in notes)


def test_under_a_contract_and_from_a_function(tmp_path: Path, zygote: Zygote) -> None:
    reference = source("x.add_(y)\nreturn y * 1")
    contract = tmp_path / "contract.toml"
    contract.write_text(draft(kernelbench.KernelBenchProgram(reference, "reference")))
    assert 'in_place = ["args[0]"]' in contract.read_text()
    garbage = source("x.zero_()\nreturn y * 1", "ModelNew")
    program, candidate = kernelbench.from_source(reference, garbage, "in_place")
    gates = ("wrong-value", "mutates-input")
    options = Options(zygote=zygote, examine=False, gates=gates, contract=load(contract))
    assert violation(verify(program, candidate, options)).gate == "wrong-value"

    file = tmp_path / "added.py"
    file.write_text(
        "def right(x, y):\n    x += y\n    return y * 1\n\ndef wrong(x, y):\n    return y * 1\n"
    )

    def added(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        x.add_(y)
        return y * 1

    given = [torch.randn(3, 5), torch.randn(3, 5)]
    options = Options(zygote=zygote, examine=False, gates=gates)
    right, wrong = (
        adjudge.verify(f"{file}::{name}", added, inputs=given, options=options)
        for name in ("right", "wrong")
    )
    assert right.standing is Standing.SOUND
    assert violation(wrong).violation.where == "final args[0]"  # type: ignore[union-attr]
