"""Each incident deceives the usual test, and its contract convicts it with the recorded signature."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from adjudge import incidents
from adjudge.contracts import classes
from adjudge.gates import gate
from adjudge.incidents import INCIDENTS, Incident
from adjudge.worker.client import Zygote

NAMES = [incident.name for incident in INCIDENTS]
HARNESS = Path(__file__).parent / "harness.py"


@pytest.mark.parametrize("incident", INCIDENTS, ids=NAMES)
def test_both_halves_show_what_is_recorded(incident: Incident, zygote: Zygote) -> None:
    found = incident.measure(zygote)
    assert found == incidents.measured()[incident.name]
    assert dict(found.violating)["exact"] == "yes"


@pytest.mark.parametrize("incident", INCIDENTS, ids=NAMES)
def test_the_contract_is_named_for_its_incident(incident: Incident) -> None:
    assert incident.contract.terms.identifier == incident.name
    codes = gate(incident.gate).CONTRACT.codes
    assert (incident.breaks in codes) if incident.breaks else not codes
    assert not incident.breaks or incident.breaks in classes.CLASSES


@pytest.mark.parametrize("half", ["conforming", "violating"])
@pytest.mark.parametrize("name", ["coerced-precision", "reads-as-zero"])
def test_the_usual_test_is_deceived(
    name: str, half: str, usual_test: Callable[[str, str], bool]
) -> None:
    """The worker's memory is zero where nothing was written, as on the backend that reads zeros."""
    incident = next(i for i in INCIDENTS if i.name == name)
    assert usual_test(incident.source("reference"), incident.source(half))


def test_a_harness_that_frees_the_reference_is_deceived() -> None:
    folder = Path(incidents.__file__).parent / "stale_answer"
    command = [sys.executable, str(HARNESS), str(folder)]
    ran = subprocess.run(command, capture_output=True, text=True, check=True)
    assert ran.stdout.split() == ["5", "5"]
