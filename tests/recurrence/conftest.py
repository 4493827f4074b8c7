"""Tests that compute on a GPU themselves, where the process that collects them may not see it: those of
a module run in one process of their own, and what it reports is reported here."""

from __future__ import annotations

import fcntl
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from adjudge.worker.launch import child_environment

APART = "ADJUDGE_TESTS_APART"
#: Seconds for a module: kernels are compiled first.
PATIENCE = 600.0

Report = dict[str, Any]


def pytest_runtest_protocol(item: pytest.Item, nextitem: pytest.Item | None) -> bool | None:
    if item.get_closest_marker("gpu") is None or item.config.option.markexpr != "gpu":
        return None
    if APART in os.environ:
        return None
    item.ihook.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)
    found = _reports(item).get(item.name, {"outcome": "failed", "words": "it was not reported"})
    report = pytest.TestReport(
        nodeid=item.nodeid,
        location=item.location,
        keywords=dict.fromkeys(item.keywords, 1),
        outcome=found["outcome"],
        longrepr=_longrepr(item, found),
        when="call",
        duration=found.get("seconds", 0.0),
    )
    item.ihook.pytest_runtest_logreport(report=report)
    item.ihook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)
    return True


def _longrepr(item: pytest.Item, found: Report) -> Any:
    if found["outcome"] == "skipped":
        path, line, _ = item.location
        return (path, line or 0, found["words"])
    return found["words"] or None


def _reports(item: pytest.Item) -> dict[str, Report]:
    """By the tests' names, of all selected ones of the item's module; made by whichever process of the
    run comes first."""
    factory: pytest.TempPathFactory = item.config._tmp_path_factory  # type: ignore[attr-defined]
    folder = factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        folder = folder.parent
    kept = folder / f"{item.path.stem}.json"
    with (folder / f"{item.path.stem}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not kept.exists():
            kept.write_text(json.dumps(_run(item, folder)))
    found: dict[str, Report] = json.loads(kept.read_text())
    return found


def _run(item: pytest.Item, folder: Path) -> dict[str, Report]:
    chosen = [i.nodeid for i in item.session.items if i.path == item.path]
    xml = folder / f"{item.path.stem}.xml"
    command = [sys.executable, "-m", "pytest", "-m", "gpu", *chosen, f"--junitxml={xml}"]
    command += [
        "-p",
        "no:cacheprovider",
        "-p",
        "no:xdist",
        "--tb=short",
        f"--rootdir={item.config.rootpath}",
    ]
    # One test that takes times waits for those of the other processes, and they for it.
    environment = {**child_environment(), APART: str(folder / "device.lock")}
    environment = {k: v for k, v in environment.items() if not k.startswith("PYTEST_")}
    words = ""
    try:
        done = subprocess.run(
            command, cwd=item.config.rootpath, env=environment, capture_output=True, text=True,
            timeout=PATIENCE, check=False,
        )  # fmt: skip
        words = (done.stdout + done.stderr)[-4000:]
    except subprocess.TimeoutExpired:
        words = f"its module did not end within {PATIENCE:g} s"
    if not xml.exists():
        return {i.name: {"outcome": "failed", "words": words} for i in item.session.items}
    return {case.get("name", ""): _report(case) for case in ElementTree.parse(xml).iter("testcase")}


def _report(case: ElementTree.Element) -> Report:
    seconds = float(case.get("time", 0))
    for kind, outcome in (("failure", "failed"), ("error", "failed"), ("skipped", "skipped")):
        found = case.find(kind)
        if found is not None:
            words = found.get("message", "") if outcome == "skipped" else found.text or ""
            return {"outcome": outcome, "words": words, "seconds": seconds}
    return {"outcome": "passed", "words": "", "seconds": seconds}
