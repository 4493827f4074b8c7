"""Operands of few bits and their scales, judged by the rounding that the reference declares."""

from __future__ import annotations

from pathlib import Path

import pytest

from adjudge.contract import Standing
from adjudge.contracts.draft import draft
from adjudge.contracts.file import load
from adjudge.contracts.promises import promises
from adjudge.frontends import kernelbench
from adjudge.judge.verify import Options, verify
from adjudge.worker.client import Zygote

HERE = Path(__file__).resolve().parent / "quantised"


@pytest.mark.parametrize("kind", ["int8", "fp8"])
@pytest.mark.parametrize("half", ["conforming", "violating"])
def test_a_quantised_product(tmp_path: Path, zygote: Zygote, kind: str, half: str) -> None:
    reference, candidate = (
        (HERE / f"{kind}_{name}.py").read_text() for name in ("reference", half)
    )
    program, judged = kernelbench.from_source(reference, candidate, half)
    contract = tmp_path / "contract.toml"
    contract.write_text(draft(program), encoding="utf-8")
    (first, second) = load(contract).terms.scope.quantised
    assert (first.tensor, first.scale) == ("args[0]", "args[2]")
    assert (second.tensor, second.scale) == ("args[1]", "args[3]")
    options = Options(
        zygote=zygote,
        examine=False,
        contract=load(contract),
        gates=("wrong-value", "narrow-accumulator"),
    )
    verdict = verify(program, judged, options)
    wanted = Standing.SOUND if half == "conforming" else Standing.VIOLATING
    assert verdict.standing is wanted, [f.reason for f in verdict.violations]


def test_a_scale_that_names_do_not_tell_is_left_to_the_owner(tmp_path: Path) -> None:
    reference = (HERE / "int8_reference.py").read_text().replace("a_scale", "left")
    contract = tmp_path / "contract.toml"
    contract.write_text(draft(kernelbench.KernelBenchProgram(reference, "r")), encoding="utf-8")
    assert "# scale = ...  (the input that holds its scales, if one does)" in contract.read_text()
    terms = load(contract).terms
    assert [q.scale for q in terms.scope.quantised] == ["", "args[3]"]
    assert any("no input named that holds its scales" in p.words for p in promises(terms))
