"""The scouting run: what must be known before the gates plan."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Container, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from math import prod
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch

from adjudge import arrays
from adjudge.judge.cases import WEIGHT_SEED, Case, CaseBuilder
from adjudge.judge.runner import Runner
from adjudge.observation import Observation, Status
from adjudge.oracle import Oracle
from adjudge.probe import Probe, Sizes, sizes_of
from adjudge.program import OutsideDomain, Program, answer
from adjudge.symbols import runs_at
from adjudge.task import Discovery, Launch
from adjudge.weights import Row, described

#: Input elements past which a run at the native point is not tried in the interpreter, where a
#: million elements take about a second.
NATIVE_ELEMENTS = 1 << 22
#: Seconds that an ordinary run may take before a smaller base point is looked for: a hundred of them
#: are made. Kernels with one program instance an output element take 2 ms for each.
ORDINARY_SECONDS = 0.25
#: Roundings that the reference's answer may be off (root mean square) before a larger base point is
#: looked for, the factors by which that is larger, and what it must gain. Well-conditioned references
#: lose a few; deep networks that normalise over two values at their smallest sizes lose thousands.
LOST, LARGER, WORTH = 256.0, (2, 4), 4.0
_TINY = 1e-30
#: Seconds given to a first run before it counts as too slow for its point.
FIRST_SECONDS = 5.0
#: Sizes are not halved below this.
LEAST = 2
#: Seconds that one run of the candidate at the native point may take; longer ones are left to a GPU.
NATIVE_SECONDS = 20.0
#: Seconds that the reference may take at the native point. The oracle evaluates it some twenty times,
#: each two to four times as slow.
REFERENCE_SECONDS = 0.25


@dataclass(frozen=True, slots=True, kw_only=True)
class Scouted:
    discovery: Discovery
    builder: CaseBuilder
    #: Runs already made, so that nothing is run twice.
    runs: tuple[tuple[Case, Observation], ...]
    #: Why the native point will not be run, or "".
    no_native: str = ""

    @property
    def ordinary(self) -> Observation:
        """The run at the base point."""
        plain = Probe(sizes=self.discovery.base)
        return next(observation for case, observation in self.runs if case.probe == plain)


def scout(
    program: Program, base: Sizes, runner: Runner, *, first_seconds: float = FIRST_SECONDS
) -> Scouted:
    """Runs the candidate at the base point, and at the native one if it answers only there.

    Args:
        first_seconds: that a first run may take before a smaller point is looked for.

    Raises:
        OutsideDomain: the reference answers at neither point.
    """
    native = sizes_of(program.task.native)
    weights = match_weights(program, base, runner)
    by_name = weights.how == "by name"
    builder = CaseBuilder(program, by_name=by_name, counterparts=weights.counterparts)
    base = _conditioned(builder, base)
    runs = []
    case = builder.build(Probe(sizes=base))
    with ThreadPoolExecutor(1) as courier:
        # While the candidate compiles, the reference is tried at the declared sizes.
        running = courier.submit(_first_run, case, runner, first_seconds)
        no_native = _native_refused(builder, native)
        observation = running.result()
    for lighter in _lighter(program, base):
        if observation.status is not Status.HUNG and observation.seconds < ORDINARY_SECONDS:
            break
        smaller = builder.build(Probe(sizes=lighter))
        found = _first_run(smaller, runner, first_seconds)
        if observation.answered and not found.answered:
            break  # A slow answer says more than a refusal of a size too small.
        base, case, observation = lighter, smaller, found
    runs.append((case, observation))
    if observation.status is Status.RAISED and base != native and not no_native:
        at_native = builder.build(Probe(sizes=native))
        there = _first_run(at_native, runner, NATIVE_SECONDS)
        # What raises at the declared sizes too is no matter of size.
        if there.answered or there.status is Status.RAISED:
            base, case, observation = native, at_native, there
            runs.append((at_native, there))
    launches = observation.launches
    habits = builder.habits(case.probe, case.arguments)
    gradients = _gradients(builder, replace(case.probe, cotangent="random"), runner, observation)
    if gradients is not None:
        runs.append(gradients)
    discovery = Discovery(
        sizes=base,
        base=base,
        native=None if no_native else native,
        launches=launches,
        blocks=_blocks(launches),
        configs=_configs(launches, gradients),
        elements=_elements(case, observation),
        seconds=observation.seconds,
        weights=weights.how,
        reference_writes=habits.writes,
        differentiable=gradients[0].request.gradients if gradients is not None else (),
        unasked=builder.unasked(gradients[0]) if gradients is not None else (),
        gradients=gradients is not None
        and _offered(runner.candidate.language, observation, gradients[1]),
    )
    return Scouted(discovery=discovery, builder=builder, runs=tuple(runs), no_native=no_native)


def _gradients(
    builder: CaseBuilder, probe: Probe, runner: Runner, forward: Observation
) -> tuple[Case, Observation] | None:
    """One backward pass at the base point; None where the reference has none or the candidate does
    not even answer."""
    if not forward.answered:
        return None
    try:
        case = builder.build(probe)
    except OutsideDomain:
        return None
    found = runner.run(case)
    # On it rests whether a backward pass is offered at all, and a hang of it convicts as any other.
    return case, runner.patiently(case) if found.status is Status.HUNG else found


def _offered(language: str, forward: Observation, backward: Observation) -> bool:
    """Whether the candidate means to be differentiated.

    A kernel that no backward stands for cuts the graph without a word. Around it gradients may still
    flow (a residual, a bias), and they are wrong; but nobody has offered them. Nor does a backward
    pass that raises offer any. Kernels in CUDA C++ are launched unseen, so that the language counts
    where no launch was seen.
    """
    if not backward.answered or backward.disconnected:
        return False
    if backward.backward in ("explicit", "function"):
        return True
    return backward.backward == "autograd" and not forward.launches and language == "torch"


def _conditioned(builder: CaseBuilder, base: Sizes) -> Sizes:
    """The base point, or a larger one where the reference loses its precision at that: a batch
    normalisation over two values answers noise, against which no error shows."""
    native = builder.program.task.native
    fixed = {s.name for s in builder.program.task.symbols if s.init_args}
    least, chosen = _lost(builder, base), base
    for factor in LARGER:
        if least <= LOST:
            break
        sizes = {n: k if n in fixed else max(k, min(native[n], k * factor)) for n, k in base}
        larger = sizes_of(sizes)
        lost = _lost(builder, larger)
        if lost < least / WORTH:
            least, chosen = lost, larger
    return chosen


def _lost(builder: CaseBuilder, sizes: Sizes) -> float:
    """The native reference's root mean square error in units of its own rounding; 0 where it has none
    to lose."""
    probe = Probe(sizes=sizes)
    try:
        arguments = builder.arguments(probe)
        oracle = Oracle(builder.make(probe, arguments), arguments, generic=True)
        pairs = zip(oracle.native, oracle.exact, strict=True)
        return max((_units(n.data, n.dtype, e.data) for n, e in pairs), default=0.0)
    except OutsideDomain:
        return 0.0


def _units(native: npt.NDArray[Any], dtype: str, exact: npt.NDArray[Any]) -> float:
    if not native.size or not dtype.startswith(("float", "bfloat")):
        return 0.0
    truth, got = exact.astype(np.float64), native.astype(np.float64)
    finite = np.isfinite(truth) & np.isfinite(got)
    error = np.where(finite, got - truth, 0.0)
    scale = np.sqrt(np.mean(np.where(finite, truth, 0.0) ** 2))
    unit = float(torch.finfo(arrays.torch_dtype(dtype)).eps) * max(float(scale), _TINY)
    return float(np.sqrt(np.mean(error**2))) / unit


class Match(NamedTuple):
    """How the candidate's weights can be made the reference's."""

    #: "none", "by name", "by seed", or "unmatched: why".
    how: str
    #: By seed: the candidate's name of each parameter of the reference for which one is known.
    counterparts: Mapping[str, str] = MappingProxyType({})


def match_weights(program: Program, sizes: Sizes, runner: Runner) -> Match:
    """How the candidate's weights can be made the reference's: by name, by seed, or not at all."""
    arguments = CaseBuilder(program, by_name=False).arguments(Probe(sizes=sizes))
    reference = program.construct(arguments, seed=WEIGHT_SEED, redrawn=False)
    if not isinstance(reference, torch.nn.Module) or not reference.state_dict():
        return Match("none")
    state = described(reference)
    worker, reply = runner.loaded()
    if reply.observation is not None:
        return Match("none")
    theirs = worker.describe_weights(
        arguments.init_args, dict(arguments.init_kwargs), seed=WEIGHT_SEED
    )
    if not isinstance(theirs, tuple):
        return Match("unmatched: the candidate could not be constructed")
    # A buffer that the candidate does without is its own affair: what it should hold, the answer shows.
    needed = {name for name, _ in reference.named_parameters()}
    ours = [row for row in state if row[0] in needed]
    found = {(name, shape, dtype) for name, shape, dtype, _ in theirs}
    if {(name, shape, dtype) for name, shape, dtype, _ in ours} <= found:
        return Match("by name")
    # The same seed drew the same bytes, whatever shape the candidate gives them.
    bytes_there = Counter((dtype, digest) for _, _, dtype, digest in theirs)
    if Counter((dtype, digest) for _, _, dtype, digest in ours) <= bytes_there:
        named = reference.named_parameters()
        varied = {name for name, p in named if bool((p != p.reshape(-1)[:1]).any())}
        return Match("by seed", counterparts(state, theirs, varied))
    missing = sorted({name for name, *_ in ours} - {name for name, *_ in theirs})
    return Match(f"unmatched: no counterpart for {', '.join(missing[:3]) or 'some parameters'}")


def counterparts(
    ours: Sequence[Row], theirs: Sequence[Row], varied: Container[str]
) -> dict[str, str]:
    """The candidate's name of each tensor of the reference that only one of its own can be.

    That is the one of the same name and bytes, else the only one of the same shape and bytes. Tensors
    that hold one value say nothing then: a scale and its inverse are both ones at first. Nor does
    anything where the candidate has tensors of other bytes: it may work on a copy that it has changed,
    and what it has kept then has no gradient.

    Args:
        ours: (name, shape, dtype, digest) of the reference's parameters and buffers.
        theirs: the same of the candidate's.
        varied: names of the reference's parameters that hold several values.
    """
    found = {row[0]: row[0] for row in ours if row in theirs}
    if {digest for *_, digest in theirs} - {digest for *_, digest in ours}:
        return found
    held, there = Counter(row[1:] for row in ours), Counter(row[1:] for row in theirs)
    named = {row[1:]: row[0] for row in theirs}
    for row in ours:
        name, kind = row[0], row[1:]
        if name in varied and held[kind] == there[kind] == 1:
            found[name] = named[kind]
    return found


def _first_run(case: Case, runner: Runner, seconds: float) -> Observation:
    observation = runner.run(case, timeout=seconds)
    if observation.answered and observation.seconds > ORDINARY_SECONDS:
        # A candidate's very first call pays for imports and caches that no later one pays for.
        again = runner.run(case, timeout=seconds)
        observation = replace(observation, seconds=min(observation.seconds, again.seconds))
    return observation


def _lighter(program: Program, base: Sizes) -> Iterator[Sizes]:
    """Ever smaller points at which the reference still runs: all sizes halved, or only those that no
    constructor argument moves with."""
    free = {s.name for s in program.task.symbols if not s.init_args}
    sizes = dict(base)
    for _ in range(5):
        halved = {name: min(size, max(LEAST, size // 2)) for name, size in sizes.items()}
        outside = {name: n if name in free else sizes[name] for name, n in halved.items()}
        found = next((p for p in (halved, outside) if p != sizes and runs_at(program, p)), None)
        if found is None:
            return
        sizes = found
        yield sizes_of(sizes)


def _native_refused(builder: CaseBuilder, native: Sizes) -> str:
    task = builder.program.task
    total = sum(prod(spec.shape) for spec in task.inputs)
    if total > NATIVE_ELEMENTS:
        return f"it has {total:,} input elements, too many for the interpreter"
    weights = sum(prod(spec.shape) for spec in task.parameters)
    if weights > NATIVE_ELEMENTS:
        return f"it has {weights:,} parameters, too many for the interpreter"
    start = time.perf_counter()
    try:
        arguments = builder.arguments(Probe(sizes=native))
        answer(builder.make(Probe(sizes=native), arguments)(), arguments)
    except OutsideDomain as why:
        return f"the reference does not answer there: {why}"
    seconds = time.perf_counter() - start
    if seconds > REFERENCE_SECONDS:
        return f"the reference takes {seconds:.1f} s there, too long for the oracle on a CPU"
    return ""


def _configs(launches: tuple[Launch, ...], gradients: tuple[Case, Observation] | None) -> int:
    """The longest list of autotune configurations, of kernels of the backward pass too."""
    both = (*launches, *(gradients[1].launches if gradients is not None else ()))
    return max((launch.configs for launch in both), default=0)


def _blocks(launches: tuple[Launch, ...]) -> tuple[int, ...]:
    """Launch constants that look like block sizes: integers from 2 up, ascending."""
    values = {v for launch in launches for _, v in launch.constants if 2 <= v <= 65_536}
    return tuple(sorted(values))


def _elements(case: Case, observation: Observation) -> int:
    outputs = sum(prod(output.data.shape) for output in observation.outputs)
    return sum(tensor.numel() for _, tensor in case.arguments.tensors()) + outputs
