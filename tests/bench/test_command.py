"""`adjudge bench` as it is typed."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from adjudge.cli import MISTAKE, run


def test_without_a_gpu_it_is_a_mistake_of_the_users(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    if torch.cuda.is_available():
        pytest.skip("there is a GPU here")
    reference, candidate = tmp_path / "reference.py", tmp_path / "candidate.py"
    reference.write_text(
        "import torch\nclass Model(torch.nn.Module):\n    def forward(self, x):\n        return x + 1\n"
        "def get_inputs():\n    return [torch.randn(8)]\ndef get_init_inputs():\n    return []\n"
    )
    candidate.write_text(reference.read_text().replace("Model(", "ModelNew("))
    assert run(["bench", str(reference), str(candidate)]) == MISTAKE
    assert "no GPU" in capsys.readouterr().err


def test_a_missing_file_is_a_mistake_of_the_users(tmp_path: Path) -> None:
    assert run(["bench", str(tmp_path / "a.py"), str(tmp_path / "b.py")]) == MISTAKE
