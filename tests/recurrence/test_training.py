"""The trainer at toy size: its tasks, both runs of a seed, what it refuses, what it writes."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from types import ModuleType
from typing import Any
from xml.etree import ElementTree

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

FOLDER = Path(__file__).resolve().parents[2] / "benchmarks" / "training"
TOY = (
    "--device cpu --batch 2 --length 32 --pairs 4 --vocabulary 32 --width 16 --heads 2 --head 8 "
    "--layers 1"
).split()

NAMED = ("member", "task", "mode")


@pytest.fixture
def train(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(FOLDER))
    for name in ("tasks", "model", "curves", "train", "page"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    import train as module  # type: ignore[import-not-found]

    return module


@pytest.fixture
def page(train: ModuleType) -> ModuleType:
    import page as module  # type: ignore[import-not-found]

    return module


def test_recall_asks_for_what_was_said(train: ModuleType) -> None:
    task = train.Recall(vocabulary=32, pairs=4, length=20)
    tokens, targets = task.batch(3, torch.Generator().manual_seed(0))
    for row, wanted in zip(tokens.tolist(), targets.tolist(), strict=True):
        pairs = dict(zip(row[0:8:2], row[1:8:2], strict=True))
        assert len(pairs) == 4
        assert wanted[:8] == wanted[9::2] + [-100] * 2
        assert wanted[8::2] == [pairs[key] for key in row[8::2]]


def test_text_is_the_same_for_a_seed_and_targets_are_the_next_letters(train: ModuleType) -> None:
    task = train.Text(length=50, sentences=40)
    tokens, targets = task.batch(2, torch.Generator().manual_seed(0))
    again, _ = task.batch(2, torch.Generator().manual_seed(0))
    assert torch.equal(tokens, again)
    assert torch.equal(tokens[:, 1:], targets[:, :-1])
    spelled = "".join(task.letters[i] for i in tokens[0].tolist())
    assert spelled in sys.modules["tasks"].story(40, task.seed)


def test_losses_fall_in_both_runs_and_go_to_the_record_and_the_curves(
    train: ModuleType, page: ModuleType, tmp_path: Path
) -> None:
    record = tmp_path / "record.json"
    given = [*TOY, "--members", "gla", "kda", "--tasks", "text", "--steps", "40"]
    assert train.main([*given, "--record", str(record)]) == 0
    found: dict[str, Any] = json.loads(record.read_text())
    assert [(r["member"], r["mode"]) for r in found["runs"]] == [
        (member, mode) for member in ("gla", "kda") for mode in ("bfloat16", "float64")
    ]
    for one in found["runs"]:
        assert len(one["loss"]) == 40
        assert sum(one["loss"][-5:]) < 0.95 * sum(one["loss"][:5])
    # The same seed: before any step the losses differ by the rounding of the logits, 2**-9 of them,
    # and logits of a new model are about one.
    narrow, exact = found["runs"][:2]
    assert 0 <= abs(narrow["loss"][0] - exact["loss"][0]) < 2.0**-6
    assert 0 < narrow["gradient_error"] < 0.1
    curves = ElementTree.fromstring(page.draw([found]))
    lines = curves.findall("{http://www.w3.org/2000/svg}polyline")
    assert [len(line.attrib["points"].split()) for line in lines] == [40] * 4
    rows = [line for line in page.page([found]).splitlines() if line.startswith(("| gla", "| kda"))]
    gap = max(abs(a - b) for a, b in zip(narrow["loss"], exact["loss"], strict=True))
    assert f" | {gap:.3f} | " in rows[0]


def test_the_page_and_the_curves_are_those_of_the_record(page: ModuleType) -> None:
    records = json.loads((page.DOCS / "training.json").read_text())
    assert (page.DOCS / "training.md").read_text() == page.page(records)
    assert (page.DOCS / "training.svg").read_text() == page.draw(records)
    for record in records:
        for run in record["runs"]:
            assert len(run["loss"]) == record["settings"]["steps"] >= 300, run["member"]


def test_new_runs_take_the_place_of_those_of_the_same_member_and_task(page: ModuleType) -> None:
    def record(date: str, *members: str) -> dict[str, Any]:
        runs = [
            {"member": member, "task": "text", "mode": mode}
            for member in members
            for mode in ("bfloat16", "float64")
        ]
        return {"date": date, "runs": runs}

    old = [record("first", "gla", "kda"), record("second", "rwkv7")]
    found = page.merge(old, [record("third", "kda", "rwkv7")])
    assert found == [record("first", "gla"), record("third", "kda", "rwkv7")]
    assert page.merge(found, [record("first", "delta_rule")])[0] == record(
        "first", "gla", "delta_rule"
    )


class NothingRead(TorchDispatchMode):
    """No operation waits for values, nor brings any from Python: a CUDA graph can hold what runs."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = func.overloadpacket.__name__
        assert name not in (
            "_local_scalar_dense",
            "nonzero",
            "masked_select",
            "equal",
            "lift_fresh",
        )
        if name == "index":
            assert all(x is None or x.dtype == torch.int64 for x in args[1])
        return func(*args, **(kwargs or {}))


def test_a_step_reads_nothing_back(train: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    # As while a graph is captured.
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: True)
    monkeypatch.setattr(torch.Tensor, "is_cuda", True)
    asked = train.arguments(TOY)
    names = train.Settings.__dataclass_fields__
    settings = train.Settings(**{name: getattr(asked, name) for name in names})
    for member in train.MEMBERS:
        task = train.task_of("recall", settings)
        model = train.model_of(member, task, settings)
        batch = task.batch(2, torch.Generator().manual_seed(0))
        for mode in train.MODES:
            model = model.to(torch.float64 if mode == "float64" else torch.float32)
            train.loss_of(model, *batch, mode)  # tables that are kept
            with NothingRead():
                train.loss_of(model, *batch, mode)[0].backward()


def test_what_a_record_holds_is_not_made_again(
    train: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    record = tmp_path / "record.json"
    given = [*TOY, "--tasks", "recall", "--steps", "1", "--resume", "--record", str(record)]
    assert train.main([*given, "--members", "gla"]) == 0
    first = json.loads(record.read_text())["runs"]
    monkeypatch.setattr(
        train,
        "run",
        lambda *one: {**dict(zip(NAMED, one[:3], strict=True)), "loss": [0], "seconds": 0},
    )
    assert train.main([*given, "--members", "gla", "kda"]) == 0
    runs = json.loads(record.read_text())["runs"]
    assert runs[:2] == first
    assert [run["member"] for run in runs] == ["gla", "gla", "kda", "kda"]
    assert train.main([*given, "--members", "gla", "--seed", "2"]) == 0
    assert [run["loss"] for run in json.loads(record.read_text())["runs"]] == [[0], [0]]


def test_where_native_is_asked_a_fallback_is_an_error(
    train: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(train.build, "cubins", dict)
    record = tmp_path / "record.json"
    given = [*TOY, "--members", "gated_delta_rule", "--tasks", "recall", "--steps", "1", "--native"]
    assert train.main([*given, "--record", str(record)]) == 1
    narrow, exact = json.loads(record.read_text())["runs"]
    assert "native kernels are required" in narrow["error"]
    assert "error" not in exact


def test_where_triton_is_asked_a_scan_on_torch_is_an_error(
    train: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("TRITON_INTERPRET", raising=False)
    record = tmp_path / "record.json"
    given = [*TOY, "--members", "gla", "--tasks", "recall", "--steps", "1", "--triton"]
    assert train.main([*given, "--record", str(record)]) == 1
    narrow, exact = json.loads(record.read_text())["runs"]
    assert "Triton kernels are required" in narrow["error"]
    assert "error" not in exact


def test_a_loss_that_is_not_finite_is_an_error(
    train: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    right = train.loss_of

    def wrong(*given: Any) -> Any:
        loss, share = right(*given)
        return loss * torch.inf, share

    monkeypatch.setattr(train, "loss_of", wrong)
    given = [*TOY, "--members", "gla", "--tasks", "recall", "--steps", "1"]
    assert train.main(given) == 1
    settings = train.arguments(given)
    names = train.Settings.__dataclass_fields__
    with pytest.raises(ArithmeticError, match="step 0"):
        train.run(
            "gla", "recall", "float64", train.Settings(**{n: getattr(settings, n) for n in names})
        )
