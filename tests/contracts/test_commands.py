"""Contracts and waivers from the command line."""

from __future__ import annotations

import re
from datetime import date
from pathlib import Path

import pytest

from adjudge.cli import run
from adjudge.contracts import waivers

ROOT = Path(__file__).resolve().parents[2]
SOFTMAX = ROOT / "examples" / "softmax_tail"
#: A softmax off by half: one violation by value, in the declared scope.
OFF = (
    "import torch\n\n\nclass ModelNew(torch.nn.Module):\n    def forward(self, x):\n"
    "        return torch.softmax(x, -1) * 1.5\n"
)
#: What the page's larger contract is for.
SCALED_PRODUCT = """
import torch

rows = 64
inner = 32
columns = 128


class Model(torch.nn.Module):
    def forward(self, a, scale, b):
        return ((a.float() * scale) @ b.float()).round().clamp(-128, 127).to(torch.int8)


def get_inputs():
    a = torch.randint(-4, 5, (rows, inner), dtype=torch.int8)
    b = torch.randint(-4, 5, (inner, columns), dtype=torch.int8)
    return [a, torch.rand(1) + 0.5, b]


def get_init_inputs():
    return []
"""
BODIES = {
    "several inputs": ("torch.rand(4, 8), torch.rand(4, 8)", "a, b", "a + b", ""),
    "integers": ("torch.randint(0, 5, (4,)), torch.rand(5, 8)", "i, t", "t[i]", ""),
    "a mask": ("torch.rand(4, 8) > 0.5, torch.rand(4, 8)", "m, x", "torch.where(m, x, 0.0)", ""),
    "several outputs": ("torch.rand(4, 8),", "x", "(x.sum(-1), x.amax(-1))", ""),
    "parameters": ("torch.rand(4, 8),", "x", "self.l(x)", "self.l = torch.nn.Linear(8, 3)"),
}


@pytest.mark.parametrize("kind", BODIES)
def test_what_init_drafts_check_accepts(
    tmp_path: Path, kind: str, capsys: pytest.CaptureFixture[str]
) -> None:
    inputs, names, body, built = BODIES[kind]
    # Square brackets are no markup.
    reference, contract = tmp_path / "reference.py", tmp_path / "[b]contract.toml"
    reference.write_text(
        "import torch\n\n\nclass Model(torch.nn.Module):\n    def __init__(self):\n"
        f"        super().__init__()\n        {built or 'pass'}\n\n"
        f"    def forward(self, {names}):\n        return {body}\n\n\n"
        f"def get_inputs():\n    return [{inputs}]\n\n\ndef get_init_inputs():\n    return []\n"
    )
    assert run(["contract", "init", str(reference), "-o", str(contract)]) == 0
    assert run(["contract", "check", str(contract), "--reference", str(reference)]) == 0
    assert run(["explain", str(contract)]) == 0
    assert f"{contract}: a sound contract" in capsys.readouterr().out


def test_the_contract_of_the_page_is_sound(tmp_path: Path) -> None:
    page = (ROOT / "docs" / "contracts" / "README.md").read_text(encoding="utf-8")
    smallest, whole, waived = re.findall(r"```toml\n(.*?)```", page, re.DOTALL)
    contract = tmp_path / "contract.toml"
    contract.write_text(smallest, encoding="utf-8")
    reference = str(SOFTMAX / "reference.py")
    assert run(["contract", "check", str(contract), "--reference", reference]) == 0
    contract.write_text(whole, encoding="utf-8")
    (tmp_path / "reference.py").write_text(SCALED_PRODUCT, encoding="utf-8")
    assert run(["contract", "check", str(contract)]) == 0
    contract.write_text(waived, encoding="utf-8")
    assert waivers.load(contract, date(2027, 6, 30)).listed


def test_a_tolerance_that_accepts_zeros_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    reference, contract = SOFTMAX / "reference.py", tmp_path / "contract.toml"
    assert run(["contract", "init", str(reference), "-o", str(contract)]) == 0
    drafted = contract.read_text()
    looser = '[[tolerance.looser]]\noutput = "output"\nreason = "why"\natol = {}\n'
    for atol, code in (("0.01", 0), ("1.0", 2)):
        contract.write_text(drafted + looser.format(atol))
        assert run(["contract", "check", str(contract), "--reference", str(reference)]) == code
    told = " ".join(capsys.readouterr().err.split())
    line = drafted.count("\n") + 4
    assert f"contract.toml:{line}: atol 1, rtol 0 accepts zero in place of every answer" in told


@pytest.mark.parametrize(
    ("of", "width", "code", "line", "words"),
    [
        ("args[0]", "rtol = 0.01", 0, 0, ""),
        ("args[1]", "rtol = 0.01", 2, 2, "the reference has no gradient for 'args[1]'"),
        ("args[0]", "atol = 1e-12", 2, 1, "tighter than the oracle supports"),
        ("args[0]", "atol = 9.0", 2, 4, "accepts zero in place of every answer"),
    ],
)
def test_a_tolerance_of_a_gradient(
    tmp_path: Path,
    of: str,
    width: str,
    code: int,
    line: int,
    words: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    reference, contract = SOFTMAX / "reference.py", tmp_path / "contract.toml"
    assert run(["contract", "init", str(reference), "-o", str(contract)]) == 0
    drafted = contract.read_text()
    contract.write_text(
        f'{drafted}[[tolerance.gradients]]\nof = "{of}"\nreason = "half of it"\n{width}\n'
    )
    assert run(["contract", "check", str(contract), "--reference", str(reference)]) == code
    told = " ".join(capsys.readouterr().err.split())
    if code:
        assert f"contract.toml:{drafted.count(chr(10)) + line}: " in told
        assert words in told
    assert run(["explain", str(contract)]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert "tolerance.gradients" in shown
    assert f"{of}: atol" in shown
    assert "half of it" in shown


@pytest.mark.parametrize(
    ("signature", "expires", "code", "words"),
    [
        ("value", "2999-12-31", 0, "no contract is broken, beyond what is waived"),
        ("value", "2020-01-01", 2, r"waivers.toml:2: .*expired"),
        ("class", "2999-12-31", 2, r"waivers.toml:2: .*matches no violation"),
        ('value"\ncandidate = "kk', "2999-12-31", 2, r"waivers.toml:2: .*no kk.py.*mean k\?"),
    ],
)
def test_waivers(
    tmp_path: Path,
    signature: str,
    expires: str,
    code: int,
    words: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    candidate, waivers = tmp_path / "k.py", tmp_path / "waivers.toml"
    candidate.write_text(OFF)
    waivers.write_text(
        f'schema = 1\n[[waiver]]\ngate = "wrong-value"\nsignature = "{signature}"\n'
        f'scope = "declared"\nreason = "known"\nexpires = {expires}\n'
    )
    command = ["verify", str(candidate), "--reference", str(SOFTMAX / "reference.py")]
    command += ["--waivers", str(waivers), "-g", "wrong-value"]
    found = run(command)
    shown = capsys.readouterr()
    assert (found, bool(re.search(words, shown.out + shown.err))) == (code, True), shown
