"""What the tools have seen, handed to gates; and what is said where they cannot run."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from adjudge.cli import MISTAKE, run
from adjudge.contract import Finding, Outcome, Scope
from adjudge.deep.reports import Reading, read
from adjudge.deep.run import attributed, check
from adjudge.errors import UsageError
from adjudge.probe import Probe

RECORDED = Path(__file__).parent / "recorded"
PROBE = Probe(sizes=(("rows", 4),))


def passed(gate: str) -> Finding:
    return Finding(gate=gate, outcome=Outcome.PASS, reason="nothing was seen")


def reading(name: str) -> Reading:
    return read((RECORDED / f"{name}.txt").read_text())


def test_an_access_outside_convicts_with_its_place() -> None:
    found = attributed(
        passed("out-of-bounds"), {"memcheck": reading("memcheck_store")}, PROBE, PROBE
    )
    assert found.outcome is Outcome.VIOLATION
    assert (found.scope, found.exact) == (Scope.DECLARED, True)
    assert found.violation is not None
    assert found.violation.where == "shifted, san.py:7"


def test_races_and_uninitialised_reads_are_noted_and_convict_nobody() -> None:
    race = attributed(
        passed("schedule-dependent"), {"racecheck": reading("racecheck")}, PROBE, None
    )
    fresh = attributed(passed("stale-output"), {"initcheck": reading("initcheck")}, PROBE, None)
    assert race.outcome is fresh.outcome is Outcome.PASS
    assert "race.cu:6" in race.notes[0]
    assert "san.py:6" in fresh.notes[0]


def test_a_tool_concerns_its_own_gate_and_says_if_it_did_not_end() -> None:
    assert attributed(
        passed("wrong-value"), {"memcheck": reading("memcheck_store")}, PROBE, None
    ) == passed("wrong-value")
    found = attributed(
        passed("schedule-dependent"), {"synccheck": reading("synccheck")}, PROBE, None
    )
    assert "did not come to its end" in found.notes[0]


def test_what_deep_mode_lacks_is_a_mistake_with_a_way_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for runner, isolation, words in (("interpret", "none", "GPU"), ("cuda", "full", "sandbox")):
        with pytest.raises(UsageError, match=words):
            check(runner, isolation)
    monkeypatch.setattr(shutil, "which", lambda *_, **__: None)
    with pytest.raises(UsageError, match="no compute-sanitizer"):
        check("cuda", "none")
    assert run(["verify", str(tmp_path / "a.py"), "--deep"]) == MISTAKE
