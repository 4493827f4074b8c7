"""The right answer on every shape of its class."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from adjudge.contract import Contract, Finding, Kind
from adjudge.gates.protocol import Evidence, Scene
from adjudge.gates.reading import decide_values
from adjudge.inputs.boundaries import boundary_sizes
from adjudge.inputs.ranks import at_other_ranks
from adjudge.probe import Probe
from adjudge.task import merged

CONTRACT = Contract(
    identifier="shape-dependent",
    summary="gives a wrong answer at another shape",
    codes=("CMP-03", "C-CMP-03"),
    kind=Kind.DERIVED,
    cost=1,
    scope="Every size of every dimension symbol of the task; the native size is declared, the "
    "others are extended. Other ranks, where gradients are asked at them or a contract declares them.",
    precondition="The reference, constructed at that shape, answers on real tensors.",
    postcondition="The answer is right at every shape, or the candidate raises a clear error.",
    tolerance="The error envelope of the reference at that shape.",
    oracle="The reference in float64 at that shape.",
    measurement="Each symbol alone takes its boundary values: 0, 1, 2, 3, primes, powers of two "
    "and their neighbours, multiples of the kernel's own block constants and their neighbours, the "
    "native size and its neighbours where affordable. The ordinary run with inputs of rank 2 to 4, "
    "where their leading dimensions are a batch to the reference. Pairs of symbols are crossed with "
    "layouts, values and memory in a covering array. A symbol that counts rows (an axis of an input, "
    "not its last, that moves no argument of the constructor) also takes 65,537, the first odd size "
    "past 2**16, with the other sizes at 8 or below: for at most two symbols, last, where nothing is "
    "wrong before and small runs foresee that it is affordable. There, errors within the loosest "
    "precision regime are left to the gates of precision, and a want of time or memory says nothing. "
    "The finding says what was asked and what was not.",
    signature="A wrong element, or a crash, at a shape where the ordinary shape is clean. A clear "
    "error is a refusal.",
)

#: Sizes tried for one symbol, smallest first. With the twenty-odd crossed probes this keeps a
#: two-symbol task near fifty shapes, about a second of interpreter time for a small kernel.
SIZES_PER_SYMBOL = 14
#: Size of one symbol: past this the interpreter takes seconds a run.
LARGEST = 2100
#: Elements of inputs and outputs in one run: past this the oracle takes seconds.
ELEMENTS = 1 << 20


def plan(scene: Scene) -> Iterable[Probe]:
    return list(_probes(scene))


def _probes(scene: Scene) -> Iterator[Probe]:
    ordinary = scene.ordinary
    base = dict(scene.discovery.base)
    for symbol in scene.task.symbols:
        room = base[symbol.name] * ELEMENTS // max(scene.discovery.elements, 1)
        cap = min(LARGEST, room, max(symbol.native + 1, 2))
        sizes = boundary_sizes(symbol, scene.discovery.blocks, cap)[:SIZES_PER_SYMBOL]
        for size in sizes:
            # A layer without width is no shape of the task: references answer oddly there.
            if size == 0 and symbol.init_args:
                continue
            if size != base.get(symbol.name):
                yield ordinary.at(merged(base, **{symbol.name: size}))
    for probe in at_other_ranks(scene.task, ordinary, scene.native):
        # A kernel for inference may be written for one rank; a gradient needs the answer under it.
        trains = scene.owes_gradients and scene.discovery.differentiable
        if trains or probe.rank in scene.task.declared.ranks:
            yield probe
    if scene.native is not None:
        yield scene.native


def decide(evidence: Evidence) -> Finding:
    return decide_values(CONTRACT, evidence, plan(evidence.scene))
