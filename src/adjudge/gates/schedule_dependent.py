"""The answer hangs neither on the configuration, nor on which instance comes first, nor on the batch."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

from adjudge.contract import Contract, Finding, Kind, Outcome, Violation
from adjudge.gates.protocol import Evidence, Scene
from adjudge.gates.reading import (
    State,
    bit_violation,
    decide_values,
    difference,
    same_bits,
    state,
    violated,
    weight,
)
from adjudge.inputs.batches import WORDS, rows_of, symbol_of
from adjudge.inputs.levels import BATCHES
from adjudge.probe import Probe
from adjudge.task import merged

CONTRACT = Contract(
    identifier="schedule-dependent",
    summary="answers otherwise under another configuration, or when program instances overlap",
    codes=("ORD-03", "C-CMP-02"),
    kind=Kind.EXACT_OR_DERIVED,
    scope="Candidates that launch kernels: their autotune configurations, and what instances of one "
    "launch read of what others write. Rows of a batch, where the reference treats them alike: a "
    "violation only where the contract declares batch invariance.",
    precondition="The candidate answers on the ordinary run.",
    postcondition="Every configuration gives the same classes of value and the same values within "
    "the envelope; no instance reads what another one of the same launch writes, unless an atomic "
    "orders the two. A row alone has the bits that it has in a batch, where that is declared.",
    tolerance="None for overlapping instances and for rows; the error envelope between "
    "configurations.",
    oracle="The reference in float64; for overlaps and rows, the candidate's own ordinary run.",
    measurement="Up to four configurations, extremes first. In the interpreter, one run in which no "
    "instance sees what another one writes: a lost update shows in no serial order. The first row "
    "alone; where batch invariance is declared, the last one and half of the batch too, of batches "
    "of several sizes.",
    signature="A configuration whose answer is wrong; a load that raced with a store, by kernel "
    "and line, and the element that differs; a row whose bits change with its batch.",
)

#: Fields of `task.Declared` that this gate judges by.
READS = ("batch_invariant",)

#: Configurations tried; the extremes of a list differ most.
MOST = 4
#: Rows of the larger batch that is taken apart: kernels choose their tiles at powers of two up to 128.
#: And the most that one run may take up, in elements.
ROWS, LARGEST = 130, 1 << 17


def plan(scene: Scene) -> Iterable[Probe]:
    probes = [scene.ordinary]
    probes += [replace(scene.ordinary, config=number) for number in chosen(scene)]
    if scene.discovery.uses_kernels and scene.runner == "interpret":
        probes.append(replace(scene.ordinary, schedule="simultaneous"))
    return [*probes, *_batches(scene)]


def _batches(scene: Scene) -> Iterator[Probe]:
    """Batches, and parts of them."""
    symbol = symbol_of(scene.task)
    if symbol is None:
        return
    if not scene.task.declared.batch_invariant:
        # What is not promised is looked at once, and reported.
        yield replace(scene.ordinary, batch="first")
        return
    wholes = [scene.ordinary, *([scene.native] if scene.native is not None else [])]
    base, rows = dict(scene.discovery.base), min(symbol.native, ROWS)
    growth = rows / max(base[symbol.name], 1)
    if growth > 1 and growth * scene.discovery.elements <= LARGEST:
        wholes.append(scene.ordinary.at(merged(base, **{symbol.name: rows})))
    for whole in dict.fromkeys(wholes):
        yield whole
        for part in BATCHES[1:]:
            yield replace(whole, batch=part)


def chosen(scene: Scene) -> list[int]:
    """Configurations to try: both ends, then inwards. The first one is the ordinary run's."""
    count = scene.discovery.configs
    inwards = [n for pair in zip(range(count), reversed(range(count)), strict=True) for n in pair]
    return [n for n in dict.fromkeys(inwards) if n][: MOST - 1]


def decide(evidence: Evidence) -> Finding:
    racing = _racing(evidence)
    probes = len(list(plan(evidence.scene)))
    if racing is not None:
        return violated(CONTRACT, evidence, racing, exact=True, probes=probes)
    parted = _parted(evidence)
    if parted and evidence.scene.task.declared.batch_invariant:
        probe = min(parted, key=weight)
        return violated(CONTRACT, evidence, _by_batch(evidence, probe), exact=True, probes=probes)
    finding = decide_values(CONTRACT, evidence, plan(evidence.scene))
    if finding.outcome is not Outcome.PASS:
        return finding
    return replace(finding, notes=(*finding.notes, *_notes(evidence, parted)))


def _parted(evidence: Evidence) -> list[Probe]:
    """Runs on a part of a batch, of which some row has other bits than in the whole batch."""
    return [
        probe
        for probe in _on_parts(evidence)
        if any(one != other for one, other in _pairs(evidence, probe))
    ]


def _on_parts(evidence: Evidence) -> list[Probe]:
    """Runs on a part of a batch that can be held against the whole one. Those whose value is wrong
    are the fault of another gate."""
    return [
        probe
        for probe, observation in evidence.observations.items()
        if probe.batch != "whole"
        and observation.answered
        and state(evidence, probe) is not State.BROKEN
        and _pairs(evidence, probe)
    ]


def _pairs(evidence: Evidence, probe: Probe) -> list[tuple[bytes, bytes]]:
    """For each output, its bytes in the batch and its bytes alone; empty if the two do not match."""
    observations = evidence.observations
    whole, part = observations.get(probe.without(["batch"])), observations[probe]
    symbol = symbol_of(evidence.scene.task)
    if whole is None or not whole.answered or symbol is None:
        return []
    pairs = []
    for all_rows, alone in zip(whole.outputs, part.outputs, strict=False):
        rows = rows_of(all_rows.data, alone.data.shape, probe.batch, probe.size(symbol.name))
        if rows is None or all_rows.dtype != alone.dtype:
            return []
        pairs.append((rows.tobytes(), alone.data.tobytes()))
    return pairs


def _by_batch(evidence: Evidence, probe: Probe) -> Violation:
    whole, part = evidence.observations[probe.without(["batch"])], evidence.observations[probe]
    symbol = symbol_of(evidence.scene.task)
    assert symbol is not None
    rows = probe.size(symbol.name)
    outputs = []
    for all_rows, alone in zip(whole.outputs, part.outputs, strict=True):
        kept = rows_of(all_rows.data, alone.data.shape, probe.batch, rows)
        assert kept is not None
        outputs.append(replace(all_rows, data=kept))
    return difference(
        replace(whole, outputs=tuple(outputs)),
        part,
        probe,
        signature="batch",
        message=f"{WORDS[probe.batch]} has other bits than in the batch of {rows}",
    )


def _racing(evidence: Evidence) -> Violation | None:
    """The simplest run in which overlapping instances change the answer."""
    found = []
    for probe, observation in evidence.observations.items():
        plain = probe.without(["schedule"])
        serial = evidence.observations.get(plain)
        if probe.schedule != "simultaneous" or serial is None or not observation.races:
            continue
        both = serial.answered and observation.answered
        if both and not same_bits(serial, observation):
            found.append(probe)
    if not found:
        return None
    probe = min(found, key=weight)
    race = evidence.observations[probe].races[0]
    one, other = race.instances
    message = (
        f"instance {other} of {race.kernel} reads at line {race.line} what instance {one} writes, "
        "and nothing orders the two"
    )
    plain = probe.without(["schedule"])
    return bit_violation(evidence, plain, probe, signature="race", message=message)


def _notes(evidence: Evidence, parted: list[Probe]) -> Iterable[str]:
    scene = evidence.scene
    if scene.discovery.configs > MOST:
        yield f"{MOST} of {scene.discovery.configs} configurations tried"
    harmless = sum(len(o.races) for o in evidence.observations.values())
    if harmless:
        yield f"{harmless} overlapping accesses that change no answer"
    alone = _on_parts(evidence)
    if parted:
        yield (
            f"bits change with the batch in {len(parted)} of {len(alone)} runs; no contract declares "
            "batch invariance"
        )
    elif alone:
        yield f"{len(alone)} runs on part of a batch have the bits of the whole one"
