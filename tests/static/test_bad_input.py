"""`adjudge inspect` on what it cannot read: one clear message, and exit code 2."""

from __future__ import annotations

from pathlib import Path

import pytest

from adjudge.cli import run

REFERENCE = Path(__file__).resolve().parents[2] / "examples" / "softmax_tail" / "reference.py"
CANDIDATE = REFERENCE.with_name("correct.py")

BAD: dict[str, tuple[bytes | None, str]] = {
    "syntax": (b"import torch\ndef broken(:\n", ":2: does not parse"),
    "zero byte": (b"import torch\0\n", "does not parse: source code string cannot contain null"),
    "nesting": (b"x = " + b"(" * 5000, "does not parse: too many nested"),
    "no UTF-8": ("# é\n".encode("latin-1"), "cannot be read as text"),
    "UTF-16": ("import torch\n".encode("utf-16"), "cannot be read as text"),
    "empty": (b"", "the file is empty"),
    "blank": (b"\n \n", "the file is empty"),
    "nothing in it": (b"x = 1\n", ""),
    "folder": (None, "this is a folder, not a file"),
    "missing": (None, "there is no such file"),
}


def written(folder: Path, kind: str) -> Path:
    path = folder / "given.py"
    content, _ = BAD[kind]
    if content is not None:
        path.write_bytes(content)
    elif kind == "folder":
        path.mkdir()
    return path


@pytest.mark.parametrize("part", ["candidate", "reference"])
@pytest.mark.parametrize("kind", BAD)
def test_what_cannot_be_read_is_told_in_one_message(
    tmp_path: Path, kind: str, part: str, capsys: pytest.CaptureFixture[str]
) -> None:
    given = written(tmp_path, kind)
    candidate, reference = (given, REFERENCE) if part == "candidate" else (CANDIDATE, given)
    code = run(["inspect", str(candidate), "--reference", str(reference)])
    shown = capsys.readouterr()
    assert code == 2
    assert shown.out == ""
    assert shown.err.count("error") == 1, shown.err
    assert "Traceback" not in shown.err
    missing = "no class ModelNew" if part == "candidate" else "the reference lacks Model"
    words = (BAD[kind][1] or missing).split()
    assert " ".join(words) in " ".join(shown.err.split())
    assert "given.py" in "".join(shown.err.split())
