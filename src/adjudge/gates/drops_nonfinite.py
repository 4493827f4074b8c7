"""NaN, infinities and overflow appear exactly where the reference says."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from adjudge.contract import Contract, Finding, Kind
from adjudge.gates.protocol import Evidence, Scene
from adjudge.gates.reading import decide_values, not_applicable
from adjudge.inputs.levels import SPECIALS
from adjudge.probe import Probe

CONTRACT = Contract(
    identifier="drops-nonfinite",
    summary="gives an ordinary number where the truth is NaN or infinite, or the reverse",
    codes=("EXC-01", "C-EXC-01"),
    kind=Kind.EXACT,
    cost=1,
    scope="Float inputs; every output element. Extended: a benchmark's own inputs are finite.",
    precondition="The float64 oracle and the native reference agree on the class of the element; "
    "where they differ, or where 0 * inf decides, the element is left out and counted. Where an "
    "infinite or huge factor may come before a sum or after it, as the scale of a quantised product "
    "may, the class of either order is right.",
    postcondition="NaN, +inf, -inf and finite values stand exactly where the reference has them; a "
    "NaN reaches the outputs that depend on it and no others.",
    tolerance="None for classes of value; finite elements are held to the envelope.",
    oracle="Classes of the reference in float64 and in its native dtype, where both agree.",
    measurement="One NaN, one infinity of each sign, the largest finite value and a negative zero, "
    "at the first, the last and an arbitrary element; whole rows of NaN, of either infinity and of "
    "huge values.",
    signature="An element of another class than the oracle's, with its index.",
)


def plan(scene: Scene) -> Iterable[Probe]:
    return [replace(scene.ordinary, special=name) for name in SPECIALS if name != "none"]


def decide(evidence: Evidence) -> Finding:
    kinds = {spec.dtype for spec in evidence.scene.task.inputs}
    if not any(kind.startswith(("float", "bfloat")) for kind in kinds):
        return not_applicable(CONTRACT, "the task has no float input that could hold a NaN")
    return decide_values(CONTRACT, evidence, plan(evidence.scene))
