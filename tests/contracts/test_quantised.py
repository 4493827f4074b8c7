"""Operands of few bits and their scales, judged by the rounding that the reference declares."""

from __future__ import annotations

from pathlib import Path

import pytest

from adjudge.contract import Standing
from adjudge.contracts.draft import draft
from adjudge.contracts.file import load
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
    assert "[[scope.quantised]]" in contract.read_text()
    options = Options(
        zygote=zygote,
        examine=False,
        contract=load(contract),
        gates=("wrong-value", "narrow-accumulator"),
    )
    verdict = verify(program, judged, options)
    wanted = Standing.SOUND if half == "conforming" else Standing.VIOLATING
    assert verdict.standing is wanted, [f.reason for f in verdict.violations]
