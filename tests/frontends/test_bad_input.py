"""A user's mistake is one clear message that says what, where and what to do."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

import adjudge
from adjudge.contract import Outcome, Standing, Verdict
from adjudge.errors import UsageError
from adjudge.frontends import kernelbench
from adjudge.frontends.examine import examine
from adjudge.judge import runner
from adjudge.judge.verify import Options, verify
from adjudge.symbols import shrunken
from adjudge.worker.client import Zygote

REFERENCE = """
import torch
import torch.nn as nn

rows = 8
columns = 32

class Model(nn.Module):
    def forward(self, x):
        return torch.relu(x)

def get_inputs():
    return [torch.randn(rows, columns)]

def get_init_inputs():
    return []
"""
CANDIDATE = """
import torch
import torch.nn as nn

class ModelNew(nn.Module):
    def forward(self, x):
        return torch.relu(x)
"""


def written(folder: Path, reference: str, candidate: str) -> tuple[Path, Path]:
    (folder / "reference.py").write_text(reference)
    (folder / "candidate.py").write_text(candidate)
    return folder / "candidate.py", folder / "reference.py"


@pytest.mark.parametrize(
    ("reference", "candidate", "words"),
    [
        (REFERENCE, "def broken(:\n", r"candidate\.py:1.*does not parse"),
        ("class Model(:\n", CANDIDATE, r"reference\.py:1.*does not parse"),
        (REFERENCE, "x = 1\n", "no class ModelNew"),
        (REFERENCE.replace("class Model(", "class Other("), CANDIDATE, "lacks Model"),
        (REFERENCE.replace("get_inputs", "inputs"), CANDIDATE, "lacks get_inputs"),
        ("import no_such_package\n" + REFERENCE, CANDIDATE, "no_such_package.*not installed"),
        ("raise RuntimeError('boom')\n" + REFERENCE, CANDIDATE, "cannot be executed.*boom"),
        (
            REFERENCE.replace("torch.randn(rows, columns)", "torch.nothing()"),
            CANDIDATE,
            r"get_inputs\(\) fails",
        ),
    ],
)
def test_files_that_cannot_be_judged(
    tmp_path: Path, reference: str, candidate: str, words: str
) -> None:
    with pytest.raises(UsageError, match=words):
        kernelbench.load(*written(tmp_path, reference, candidate))


def test_missing_folder_and_binary(tmp_path: Path) -> None:
    candidate, reference = written(tmp_path, REFERENCE, CANDIDATE)
    for path in (tmp_path / "nothing.py", tmp_path):
        with pytest.raises(UsageError):
            kernelbench.load(path, reference)
    candidate.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(UsageError, match="text"):
        kernelbench.load(candidate, reference)


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("torch.relu(x)", "torch.rand_like(x)", "random"),
        ("torch.relu(x)", "torch.ones_like(x)", "constant"),
        ("torch.relu(x)", "torch.relu(x) * 1e-4", "zeros pass"),
        ("torch.relu(x)", "x / 0 * 0", "NaN"),
        ("forward(self, x)", "forward(self, x, y=None)", None),
    ],
)
def test_a_bad_exam_is_said_to_be_one(old: str, new: str, words: str | None) -> None:
    program = kernelbench.KernelBenchProgram(REFERENCE.replace(old, new), "task")
    found = " ".join(examine(program))
    assert (words in found) if words else not found


def _judged(reference: str, candidate: str, zygote: Zygote) -> Verdict:
    program, source = kernelbench.from_source(reference, candidate, "case")
    return verify(program, source, Options(zygote=zygote))


@pytest.mark.parametrize(
    "candidate",
    [
        CANDIDATE.replace("forward(self, x)", "forward(self)"),
        CANDIDATE.replace("return torch.relu(x)", "raise NotImplementedError('later')"),
        CANDIDATE.replace("return torch.relu(x)", "return None"),
        CANDIDATE.replace("def forward", "def __init__(self, a):\n        pass\n    def forward"),
        "raise SystemExit(0)\n" + CANDIDATE,
    ],
)
def test_a_candidate_that_never_answers_is_not_sound(candidate: str, zygote: Zygote) -> None:
    verdict = _judged(REFERENCE, candidate, zygote)
    assert verdict.standing is not Standing.SOUND
    assert all(finding.reason for finding in verdict.findings)


def test_hanging_on_what_would_convict_is_a_violation(
    zygote: Zygote, monkeypatch: pytest.MonkeyPatch
) -> None:
    hanging = "import time\n" + CANDIDATE.replace(
        "return", "time.sleep(0 if torch.isfinite(x).all() else 600)\n        return"
    )
    monkeypatch.setattr(runner, "PATIENT_SECONDS", 2.0)
    program, candidate = kernelbench.from_source(REFERENCE, hanging, "hanging")
    options = Options(zygote=zygote, timeout=1.0, gates=("wrong-value", "drops-nonfinite"))
    verdict = verify(program, candidate, options)
    assert verdict.standing is Standing.FRAGILE
    (finding,) = verdict.violations
    assert finding.gate == "drops-nonfinite"
    assert finding.violation is not None
    assert finding.violation.signature == "hung"


#: As one that compiles in the first backward pass of a process.
SLOW_AT_FIRST = """
import time

ready = []


class Relu(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return torch.relu(x)

    @staticmethod
    def backward(ctx, grad):
        if not ready:
            ready.append(True)
            time.sleep(1.5)
        (x,) = ctx.saved_tensors
        return torch.where(x > 0, grad, 0)


class ModelNew(nn.Module):
    def forward(self, x):
        return Relu.apply(x)
"""


def test_a_first_backward_pass_that_takes_long_is_no_hang(zygote: Zygote) -> None:
    source = CANDIDATE.split("class ")[0] + SLOW_AT_FIRST
    program, candidate = kernelbench.from_source(REFERENCE, source, "slow at first")
    options = Options(zygote=zygote, timeout=1.0, gates=("wrong-value", "wrong-gradient"))
    verdict = verify(program, candidate, options)
    assert verdict.standing is Standing.SOUND
    assert {f.gate: f.outcome for f in verdict.findings}["wrong-gradient"] is Outcome.PASS


def test_a_reference_that_raises_is_inconclusive(zygote: Zygote) -> None:
    reference = REFERENCE.replace("return torch.relu(x)", "raise ValueError('no')")
    verdict = _judged(reference, CANDIDATE, zygote)
    assert verdict.standing is Standing.INCONCLUSIVE
    assert any("does not answer" in warning for warning in verdict.warnings)


def test_a_random_reference_is_inconclusive(zygote: Zygote) -> None:
    reference = REFERENCE.replace("torch.relu(x)", "torch.dropout(x, 0.5, True)")
    verdict = _judged(reference, CANDIDATE, zygote)
    assert verdict.standing is Standing.INCONCLUSIVE
    assert any("random" in warning for warning in verdict.warnings)


def test_symbols_move_inputs_and_constructor_together() -> None:
    source = REFERENCE.replace(
        "class Model(nn.Module):",
        "class Model(nn.Module):\n    def __init__(self, width):\n        super().__init__()\n"
        "        self.linear = nn.Linear(width, 7)\n",
    )
    source = source.replace("torch.relu(x)", "self.linear(x)").replace(
        "return []", "return [columns]"
    )
    program = kernelbench.KernelBenchProgram(source, "linear")
    symbols = {symbol.name: symbol for symbol in program.task.symbols}
    assert set(symbols) == {"rows", "columns"}
    assert symbols["columns"].init_args == (0,)
    assert shrunken(program)["columns"] <= 32


def _scaled(x: torch.Tensor, index: torch.Tensor, *, factor: float) -> dict[str, object]:
    return {"values": [x[index] * factor, x.sum()], "count": index.numel()}


def scaled(x: torch.Tensor, index: torch.Tensor, *, factor: float) -> dict[str, object]:
    return {"values": [torch.index_select(x, 0, index) * factor, x.sum()], "count": len(index)}


def scaled_wrongly(x: torch.Tensor, index: torch.Tensor, *, factor: float) -> dict[str, object]:
    return {"values": [torch.index_select(x, 0, index), x.sum()], "count": len(index)}


@pytest.mark.parametrize(("candidate", "sound"), [(scaled, True), (scaled_wrongly, False)])
def test_callables_with_scalars_keywords_and_nested_outputs(
    candidate: object, sound: bool, zygote: Zygote
) -> None:
    verdict = adjudge.verify(
        candidate,  # type: ignore[arg-type]
        _scaled,
        inputs=[torch.randn(12, 4), torch.randint(0, 12, (6,))],
        kwargs={"factor": 0.5},
        options=Options(zygote=zygote),
    )
    assert (verdict.standing is Standing.SOUND) == sound, [
        (f.gate, f.reason) for f in verdict.violations
    ]


def test_callables_that_cannot_be_found_again() -> None:
    with pytest.raises(UsageError, match="source cannot be found"):
        adjudge.verify(lambda x: x, torch.relu, inputs=[torch.randn(3)])
    with pytest.raises(UsageError, match="no example input"):
        adjudge.verify(scaled, torch.relu, inputs=[])
    with pytest.raises(UsageError, match="fails on the example"):
        adjudge.verify(scaled, torch.matmul, inputs=[torch.randn(3, 4), torch.randn(3, 4)])
