"""The contiguous answer, however the tensors lie in memory."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from adjudge.contract import Contract, Finding, Kind
from adjudge.gates.protocol import Evidence, Scene
from adjudge.gates.reading import decide_values
from adjudge.inputs.levels import LAYOUTS
from adjudge.probe import Probe

CONTRACT = Contract(
    identifier="layout-dependent",
    summary="ignores how its inputs lie in memory",
    kind=Kind.EXACT_OR_DERIVED,
    cost=1,
    scope="Transposed, sliced, row-padded, offset, misaligned, expanded and overlapping inputs, "
    "integer side inputs as views, channels-last images, and strides whose offsets pass 2**31. "
    "Extended: a benchmark passes contiguous tensors.",
    precondition="The reference accepts the layout. An argument that the reference writes, or that is "
    "declared in-place, is never expanded or overlapping: elements that share memory have no answer.",
    postcondition="The answer for the same values, or a clear refusal.",
    tolerance="The error envelope: the same values may be summed in another order.",
    oracle="The reference in float64 on the same values.",
    measurement="One run for each layout, the gaps between the elements filled with the guard's "
    "pattern; layouts are crossed with shapes and values in the covering array.",
    signature="A wrong element under a layout where the contiguous run is clean.",
)


def plan(scene: Scene) -> Iterable[Probe]:
    return [replace(scene.ordinary, layout=layout) for layout in LAYOUTS if layout != "contiguous"]


def decide(evidence: Evidence) -> Finding:
    return decide_values(CONTRACT, evidence, plan(evidence.scene))
