"""Triton kernels that write where their caller says, judged and replayed under a contract."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from adjudge.cli import run
from adjudge.contract import Outcome, Standing, Verdict
from adjudge.contracts.draft import draft
from adjudge.contracts.file import ContractFile, load
from adjudge.errors import UsageError
from adjudge.frontends import kernelbench
from adjudge.judge.verify import Options, verify
from adjudge.worker.client import Zygote

REFERENCE = """
import torch

rows = 4
columns = 48

class Model(torch.nn.Module):
    def forward(self, x):
        return {}

def get_inputs():
    return [torch.randn(rows, columns)]

def get_init_inputs():
    return []
"""
SCALED = "3 * x"
KERNEL = """
import torch
import triton
import triton.language as tl

@triton.jit
def scaled(x_ptr, out_ptr, n, last, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + offsets, mask=offsets < n)
    tl.store(out_ptr + offsets, 3 * x, mask=offsets < last)

class ModelNew(torch.nn.Module):
    def forward(self, x, *, out):
        x, n = x.contiguous(), x.numel()
        grid = (triton.cdiv(n, 64),)
        BODY
        return out
"""
HALVES = {
    "whole": "if n: scaled[grid](x, out, n, n, BLOCK=64)",
    "partly": "if n: scaled[grid](x, out, n, n - n // 8, BLOCK=64)",
    "elsewhere": "out = torch.empty_like(out); n and scaled[grid](x, out, n, n, BLOCK=64)",
}


def contract(folder: Path, reference: str, declares: str) -> tuple[Path, ContractFile]:
    text = draft(kernelbench.KernelBenchProgram(reference, "reference"))
    path = folder / "contract.toml"
    path.write_text(text.replace("[postcondition]", f"[postcondition]\n{declares}"))
    return path, load(path)


def judged(folder: Path, half: str, zygote: Zygote) -> Verdict:
    reference = REFERENCE.format(SCALED)
    source = KERNEL.replace("BODY", HALVES[half])
    program, candidate = kernelbench.from_source(reference, source, "scaled")
    _, promised = contract(folder, reference, 'destinations = ["out"]')
    gates = ("wrong-value", "stale-output", "shape-dependent", "mutates-input", "retains-state")
    options = Options(zygote=zygote, examine=False, contract=promised, gates=gates)
    return verify(program, candidate, options)


def test_a_kernel_that_fills_what_it_is_given_is_sound(tmp_path: Path, zygote: Zygote) -> None:
    verdict = judged(tmp_path, "whole", zygote)
    assert verdict.standing is Standing.SOUND, [(f.gate, f.reason) for f in verdict.violations]
    assert next(f for f in verdict.findings if f.gate == "wrong-value").outcome is Outcome.PASS


@pytest.mark.parametrize("half", ["partly", "elsewhere"])
def test_one_that_does_not_is_convicted(tmp_path: Path, half: str, zygote: Zygote) -> None:
    verdict = judged(tmp_path, half, zygote)
    assert verdict.standing is Standing.VIOLATING
    assert {f.gate for f in verdict.violations} & {"wrong-value", "stale-output"}


def test_a_violation_replays_under_its_contract(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    reference, candidate = tmp_path / "reference.py", tmp_path / "partly.py"
    reference.write_text(REFERENCE.format(SCALED))
    candidate.write_text(KERNEL.replace("BODY", HALVES["partly"]))
    path, _ = contract(tmp_path, reference.read_text(), 'destinations = ["out"]')
    named = ["--reference", str(reference), "--contract", str(path)]
    record = tmp_path / "record.json"
    gates = ["-g", "wrong-value,stale-output"]
    assert run(["verify", str(candidate), *named, *gates, "--json", str(record)]) == 1
    lines = [
        f["violation"]["replay"] for f in json.loads(record.read_text())["findings"]
        if f["violation"]
    ]  # fmt: skip
    assert lines
    assert run(["replay", lines[0], str(candidate), *named]) == 1
    # Whoever gives the kernel no memory sees no violation of the contract.
    assert run(["replay", lines[0], str(candidate), "--reference", str(reference)]) != 1
    assert "Traceback" not in capsys.readouterr().err


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ("x - x.mean(0, keepdim=True)", "does not treat the rows of a batch alike"),
        ("x.sum()", "does not treat the rows of a batch alike"),
        ("x - x.mean(1, keepdim=True)", ""),
    ],
)
def test_a_reference_that_mixes_rows_cannot_be_declared_batch_invariant(
    tmp_path: Path, body: str, words: str, zygote: Zygote
) -> None:
    reference = REFERENCE.format(body)
    path, promised = contract(tmp_path, reference, "batch_invariant = true")
    source = reference.replace("Model", "ModelNew")
    program, candidate = kernelbench.from_source(reference, source, "rows")
    options = Options(
        zygote=zygote, examine=False, contract=promised, gates=("schedule-dependent",)
    )
    if not words:
        assert verify(program, candidate, options).standing is Standing.SOUND
        return
    with pytest.raises(UsageError, match=words) as raised:
        verify(program, candidate, options)
    line = path.read_text().splitlines().index("batch_invariant = true") + 1
    assert f"contract.toml:{line}" in str(raised.value)
