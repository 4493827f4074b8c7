"""What a candidate needs and this machine or runner lacks: no fault of the candidate's."""

from __future__ import annotations

import importlib.util
import re

from adjudge.errors import UsageError
from adjudge.frontends.sources import DISTRIBUTIONS, LANGUAGES, languages
from adjudge.observation import Observation
from adjudge.task import Candidate

#: Languages whose kernels only a GPU runs.
ON_A_GPU = ("tilelang", "cute", "cuda")
_NAMED = re.compile(r"No module named '([\w.]+)'")


def absent_package(candidate: Candidate, observation: Observation) -> UsageError | None:
    """The mistake of judging a candidate without a package that it imports, if a run shows one."""
    raised = observation.raised
    if raised is None or raised.type != ModuleNotFoundError.__name__:
        return None
    named = _NAMED.search(raised.message)
    package = named[1].split(".")[0] if named else ""
    if raised.phase != "load" and (not package or importlib.util.find_spec(package) is not None):
        # Anybody can raise this error: in a call it counts only where there is no such package.
        return None
    return UsageError(
        f"the candidate cannot be {'loaded' if raised.phase == 'load' else 'run'}: "
        f"{raised.message.splitlines()[0][:200] if raised.message else 'a module is missing'}",
        where=candidate.path or candidate.name,
        todo=_todo(candidate, package),
    )


def _todo(candidate: Candidate, package: str) -> str:
    language = {"tilelang": "tilelang", "cutlass": "cute"}.get(package)
    if language is None:
        return "Install it in the environment that adjudge runs in."
    return (
        f"{LANGUAGES[language]} runs on a GPU only: install {DISTRIBUTIONS.get(package, package)} on a "
        "machine that has one, and judge there with --runner cuda."
    )


def gpu(candidate: Candidate, observation: Observation, runner: str) -> str:
    """Why a runner without a GPU cannot tell what a candidate does that gives no answer on it; "" if
    that is its own fault, or it answers (by whatever it falls back to)."""
    if runner != "interpret" or observation.answered:
        return ""
    found = [LANGUAGES[name] for name in languages(candidate.source) if name in ON_A_GPU]
    if not found:
        return ""
    return f"{' and '.join(found)} cannot be run without a GPU (--runner cuda)"
