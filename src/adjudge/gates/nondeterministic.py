"""Repeated runs are bit-identical."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from adjudge.contract import Contract, Finding, Kind
from adjudge.gates.protocol import Evidence, Scene
from adjudge.gates.reading import decide_bits, not_applicable
from adjudge.probe import Probe

CONTRACT = Contract(
    identifier="nondeterministic",
    summary="gives another answer on the next run",
    codes=("ORD-02", "C-ORD-02"),
    kind=Kind.EXACT,
    scope="The declared inputs at the base point. In the interpreter: repeats, a fresh process "
    "with other addresses, and other orders of the program instances.",
    precondition="The task does not declare randomness, and the native reference repeats its bits.",
    postcondition="The same inputs give the same bits, whatever the run, the process, the "
    "addresses or the order in which program instances happen to run.",
    tolerance="None: bit equality.",
    oracle="The candidate's own first run.",
    measurement="The ordinary run again in the same process, in a fresh process, with the program "
    "instances in reverse and in random orders.",
    signature="Two runs on equal inputs whose output bytes differ.",
)

SCHEDULES = ("reversed", "random:1", "random:2")


def plan(scene: Scene) -> Iterable[Probe]:
    ordinary = scene.ordinary
    probes = [ordinary, replace(ordinary, repeat=1), replace(ordinary, process=1)]
    if scene.discovery.uses_kernels:
        probes += [replace(ordinary, schedule=name) for name in SCHEDULES]
    return probes


def decide(evidence: Evidence) -> Finding:
    scene = evidence.scene
    if scene.task.declared.random:
        return not_applicable(CONTRACT, "the task declares randomness")
    return decide_bits(
        CONTRACT,
        evidence,
        [(scene.ordinary, probe) for probe in plan(scene) if probe != scene.ordinary],
        signature="varying",
        message="two runs on the same inputs give different bits",
    )
