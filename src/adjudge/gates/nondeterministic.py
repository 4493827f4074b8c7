"""Repeated runs are bit-identical."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
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
    scope="The declared inputs at the base point, and on a GPU at the declared sizes; gradients where "
    "they are owed. In the interpreter: repeats, a fresh process with other addresses, and other orders "
    "of the program instances.",
    precondition="The task does not declare randomness, and the native reference repeats its bits: "
    "none of its operations is documented to vary on that device.",
    postcondition="The same inputs give the same bits, whatever the run, the process, the "
    "addresses or the order in which program instances happen to run.",
    tolerance="None: bit equality.",
    oracle="The candidate's own first run.",
    measurement="The ordinary run again in the same process, in a fresh process, with the program "
    "instances in reverse and in random orders; its gradients likewise.",
    signature="Two runs on equal inputs whose output bytes differ.",
)

SCHEDULES = ("reversed", "random:1", "random:2")


def plan(scene: Scene) -> Iterable[Probe]:
    return list(dict.fromkeys(probe for pair in _pairs(scene) for probe in pair))


def _pairs(scene: Scene) -> Iterator[tuple[Probe, Probe]]:
    """(run, the same run another time)."""
    ordinary = scene.ordinary
    yield ordinary, replace(ordinary, process=1)
    baselines = [ordinary]
    if scene.owes_gradients:
        baselines.append(replace(ordinary, cotangent="random"))
    for baseline in baselines:
        yield baseline, replace(baseline, repeat=1)
        if scene.discovery.uses_kernels:
            for name in SCHEDULES:
                yield baseline, replace(baseline, schedule=name)
    if scene.runner == "cuda" and scene.native is not None:
        # The few program instances of a small run may well end in one order.
        yield scene.native, replace(scene.native, repeat=1)


def decide(evidence: Evidence) -> Finding:
    scene = evidence.scene
    if scene.task.declared.random:
        return not_applicable(CONTRACT, "the task declares randomness")
    return decide_bits(
        CONTRACT,
        evidence,
        list(_pairs(scene)),
        signature="varying",
        message="two runs on the same inputs give different bits",
    )
