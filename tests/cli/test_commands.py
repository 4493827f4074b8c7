"""The command line: what it prints and the code it ends with."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from adjudge import record
from adjudge.cli import common, run
from adjudge.contract import Outcome, Standing

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
SOFTMAX = EXAMPLES / "softmax_tail"


def test_help_and_import_do_not_load_torch() -> None:
    code = (
        "import sys, adjudge\nfrom adjudge.cli import run\nrun(['--help'])\n"
        "assert 'torch' not in sys.modules and 'numpy' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True, capture_output=True)


def test_a_broken_kernel_is_convicted_and_replayed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    written = tmp_path / "record.json"
    assert run(["verify", str(SOFTMAX / "broken.py"), "--json", str(written)]) == 1
    shown = capsys.readouterr().out
    assert "shape-dependent" in shown
    verdict = record.from_json(written.read_text())
    assert verdict.standing is Standing.FRAGILE
    (finding,) = verdict.violations
    assert finding.violation is not None
    line = re.search(r"adjudge replay (\S+) (\S+) --reference (\S+)", shown)
    assert line is not None
    assert line[1] == finding.violation.replay
    command = [sys.executable, "-m", "adjudge", *line[0].split()[1:]]
    again = subprocess.run(command, capture_output=True, text=True, check=False)
    assert again.returncode == 1, again.stderr
    assert "shows again" in again.stdout
    assert again.stdout.count("the same bytes") == 2
    replayed = run(["replay", line[1], str(SOFTMAX / "correct.py")])
    assert replayed == 0
    assert run(["replay", line[1], str(EXAMPLES / "gelu_overflow" / "correct.py")]) == 2


def test_a_correct_kernel_is_clean(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["verify", str(SOFTMAX / "correct.py"), "--json", "-"]) == 0
    verdict = record.from_json(capsys.readouterr().out)
    assert verdict.standing is Standing.SOUND
    assert {f.gate for f in verdict.findings} == {g for g, _ in verdict.timings} & {
        f.gate for f in verdict.findings
    }


@pytest.mark.parametrize(
    "arguments",
    [
        ["verify", "nothing.py"],
        ["verify", str(SOFTMAX / "broken.py"), "--reference", "nothing.py"],
        ["verify", str(SOFTMAX / "broken.py"), "--gates", "wrong-valu"],
        ["verify", str(SOFTMAX / "broken.py"), "--gates", ","],
        ["verify", str(SOFTMAX / "broken.py"), "--budget", "soon"],
        ["verify", str(SOFTMAX / "broken.py"), "--budget", "-1"],
        ["verify", str(SOFTMAX / "broken.py"), "--budget", "nan"],
        ["verify", str(SOFTMAX / "broken.py"), "--budget", "0s"],
        ["verify", str(SOFTMAX / "broken.py"), "--budget", "5 parsecs"],
        ["verify", str(SOFTMAX / "broken.py"), "--required", "fp33"],
        ["verify", str(SOFTMAX / "broken.py"), "--json", "no/such/folder/record.json"],
        ["verify"],
        ["verify", "--frobnicate"],
        ["replay", "rubbish", str(SOFTMAX / "broken.py")],
        ["explain", "stale"],
        ["task", "nothing.py"],
        ["demo", "nowhere"],
        ["frobnicate"],
    ],
)
def test_mistakes_end_with_two_and_no_traceback(
    arguments: list[str], capfd: pytest.CaptureFixture[str]
) -> None:
    assert run(arguments) == 2
    shown = capfd.readouterr()
    assert shown.out + shown.err
    assert "Traceback" not in shown.err


def test_what_could_not_be_judged_is_not_clean(tmp_path: Path) -> None:
    candidate = tmp_path / "candidate.py"
    candidate.write_text("import torch\nclass ModelNew(torch.nn.Module):\n    pass\n")
    assert run(["verify", str(candidate), "--reference", str(SOFTMAX / "reference.py")]) != 0


def test_a_budget_that_leaves_gates_out_acquits_nobody(
    capsys: pytest.CaptureFixture[str],
) -> None:
    record_of = ["verify", str(SOFTMAX / "correct.py"), "--budget", "1ms", "--json", "-"]
    assert run(record_of) == 3
    verdict = record.from_json(capsys.readouterr().out)
    assert any("the time allowed leaves out" in words for words in verdict.warnings)
    starved = {f.gate: f for f in verdict.findings}
    for name in ("shape-dependent", "nondeterministic", "scale-variant", "order-bound"):
        assert starved[name].outcome is Outcome.NOT_APPLICABLE
        assert starved[name].reason.startswith("budget")


@pytest.mark.parametrize(
    ("words", "seconds"), [("5s", 5.0), ("500ms", 0.5), ("2m", 120.0), ("1.5", 1.5), ("", None)]
)
def test_a_budget_is_a_length_of_time(words: str, seconds: float | None) -> None:
    assert common.seconds_of(words) == seconds


def test_what_raises_at_the_declared_sizes_is_no_matter_of_shape(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    candidate = tmp_path / "candidate.py"
    body = "import torch\nclass ModelNew(torch.nn.Module):\n    def forward(self, x, y):\n"
    candidate.write_text(body + "        return x\n")
    assert run(["verify", str(candidate), "--reference", str(SOFTMAX / "reference.py")]) == 1
    shown = capsys.readouterr().out
    assert "✗ wrong-value  declared" in shown
    assert "✗ shape-dependent" not in shown


def test_a_missing_package_is_the_users_to_install(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    candidate = tmp_path / "candidate.py"
    candidate.write_text("import no_such_package\n" + (SOFTMAX / "correct.py").read_text())
    assert run(["verify", str(candidate), "--reference", str(SOFTMAX / "reference.py")]) == 2
    assert "no_such_package" in capfd.readouterr().err


def test_a_file_that_judges_itself_is_told_of_the_guard(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(
        "import adjudge, torch\n\n\ndef ours(x):\n    return torch.relu(x)\n\n\n"
        "adjudge.verify(ours, torch.relu, inputs=[torch.randn(4, 8)])\n"
    )
    done = subprocess.run(
        [sys.executable, str(script)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 1
    assert "__main__" in done.stderr


def test_a_near_miss_is_suggested(capfd: pytest.CaptureFixture[str]) -> None:
    assert run(["explain", "wrong-valu"]) == 2
    assert run(["explain", "C-PRC-1"]) == 2
    told = capfd.readouterr().err
    assert "wrong-value" in told
    assert "C-PRC-01" in told


def test_explain_lists_and_shows(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["explain"]) == 0
    assert "mutates-input" in capsys.readouterr().out
    assert run(["explain", "mutates-input"]) == 0
    assert "postcondition" in capsys.readouterr().out


def test_task_and_doctor(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["task", str(SOFTMAX / "reference.py")]) == 0
    assert "columns" in capsys.readouterr().out
    assert run(["doctor"]) == 0
    shown = capsys.readouterr().out
    assert "triton" in shown
    assert "disassembler" in shown


def test_records_refuse_what_they_do_not_know() -> None:
    from adjudge.errors import UsageError

    for text in ("", "[]", '{"schema": 99}', '{"schema": 1}'):
        with pytest.raises(UsageError):
            record.from_json(text)


def test_the_published_schema_is_current() -> None:
    published = Path(__file__).resolve().parents[2] / "docs" / "verdict.schema.json"
    assert json.loads(published.read_text()) == record.json_schema()


def test_hints_are_shown_and_change_no_standing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = (SOFTMAX / "correct.py").read_text() + "\nimport time\n\nBEGUN = time.perf_counter()\n"
    (tmp_path / "timed.py").write_text(text)
    arguments = ["verify", str(tmp_path / "timed.py"), "--gates", "wrong-value"]
    assert run([*arguments, "--reference", str(SOFTMAX / "reference.py")]) == 0
    line = text.count("\n")
    assert f"timed:{line}  reads-clock: uses time.perf_counter" in capsys.readouterr().out
