"""From a probe to the bytes of one run: the judge's side of what a candidate is fed."""

from __future__ import annotations

import copy
import hashlib
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from adjudge import arrays
from adjudge.errors import UsageError
from adjudge.inputs import batches, cotangents, layouts, values
from adjudge.inputs.levels import STRUCTURED, TIED
from adjudge.inputs.philox import Stream
from adjudge.inputs.sampler import Sampler
from adjudge.inputs.specials import with_special
from adjudge.judge.habits import Habits, habits, hands_on
from adjudge.judge.ranked import at_rank, strangeness
from adjudge.oracle import Oracle
from adjudge.oracle.finals import FinalOracle
from adjudge.oracle.gradients import GradientOracle, pull
from adjudge.probe import Probe
from adjudge.program import Arguments, OutsideDomain, Program
from adjudge.worker.client import Call, RunRequest, TensorImage
from adjudge.worker.protocol import FILL_BYTES

#: Seed of the weights. Any number would do; it is KernelBench's, so that a failure seen here can be
#: looked for there.
WEIGHT_SEED = 42
#: Added to a probe's seed for the "other" content of a history.
OTHER = 104_729

#: Float64 answers of a row alone, in its batch and at another rank agree to this part of the largest:
#: libraries sum in another order at another size, and float32 could not tell them apart (2**-24).
ALIKE = 2.0**-36

#: What of a probe its values hang on, layouts that tie elements aside.
_OF_VALUES = ("sizes", "seed", "distribution", "special", "dtype", "batch", "rank")
#: Draws kept, and the most elements of one: probes that share their values ask for them in turn. The
#: declared shape, of up to four million elements, is asked some ten times.
KEPT_DRAWS, KEPT_ELEMENTS = 16, 1 << 22

Weights = Mapping[str, npt.NDArray[Any]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One probe made concrete."""

    probe: Probe
    #: What the observed call is given; the oracle evaluates the reference on exactly this.
    arguments: Arguments
    request: RunRequest
    #: SHA-256 over the input bytes: a replay must see the same.
    digest: str


class CaseBuilder:
    """Builds cases for one program."""

    def __init__(
        self,
        program: Program,
        *,
        by_name: bool,
        counterparts: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        self.program = program
        #: True if the reference's state is loaded into the candidate by name.
        self.by_name = by_name
        #: Where it is not: the candidate's names of the reference's parameters, as far as known.
        self.counterparts = counterparts
        #: By probe, why the reference gives it no meaning at its rank; "" where it does.
        self._unranked: dict[Probe, str] = {}
        self._habits: dict[Probe, Habits] = {}
        self._drawn: OrderedDict[Probe, Arguments] = OrderedDict()

    def build(self, probe: Probe) -> Case:
        """The case of `probe`.

        Raises:
            OutsideDomain: the reference, its inputs or the factor do not exist at this point.
        """
        if probe.weights != "seeded" and self.program.task.parameters and not self.by_name:
            # A candidate that fills its own parameters otherwise would draw others.
            raise OutsideDomain("parameters can be redrawn only where they match by name")
        arguments = self.arguments(probe)
        if probe.batch != "whole":
            self._check_rows(probe, arguments)
        if probe.rank:
            self._check_rank(probe)
        images = self._images(arguments, probe)
        destinations, structure = self._destinations(probe, arguments)
        images.kwargs.update(destinations)
        if destinations and probe.cotangent != "none":
            raise OutsideDomain("outputs in memory that the caller gives have no gradient")
        gradients = self.gradients(probe, arguments) if probe.cotangent != "none" else None
        if gradients is not None:
            images = replace(images, cotangents=gradients.images(probe.cotangent))
        finals, state = self._finals(probe, arguments)
        calls, first_weights = self._calls(probe, arguments, images, destinations)
        request = RunRequest(
            init_args=arguments.init_args,
            init_kwargs=dict(arguments.init_kwargs),
            seed=WEIGHT_SEED,
            redrawn=probe.weights == "redrawn",
            weights=first_weights,
            calls=calls,
            fill=probe.fill,
            guard=probe.guard,
            displaced=probe.process > 0,
            schedule=probe.schedule,
            config=probe.config,
            dtype="" if probe.dtype == "native" else probe.dtype,
            training=None,
            destinations=tuple(
                (f"kwargs[{name!r}]", path)
                for (name, _), path in zip(destinations.items(), structure.paths, strict=True)
            ),
            structure=structure.words,
            finals=finals,
            state=state,
            gradients=gradients.names if gradients is not None else (),
            counterparts=tuple(self.counterparts.items()) if gradients is not None else (),
            twice=probe.cotangent == "twice",
        )
        return Case(probe=probe, arguments=arguments, request=request, digest=_digest(arguments))

    def arguments(self, probe: Probe) -> Arguments:
        """Drawn, special value placed, and made consistent with a layout that ties elements.

        Tensors of the caller's own: many probes share their values, and some references write to them.
        """
        tied = probe.layout if probe.layout in TIED else ""
        point = Probe(layout=tied, **{name: getattr(probe, name) for name in _OF_VALUES})
        if point in self._drawn:
            self._drawn.move_to_end(point)
            return self._drawn[point].copied()
        arguments = self._arguments(probe)
        if sum(t.numel() for _, t in arguments.tensors()) <= KEPT_ELEMENTS:
            self._drawn[point] = arguments.copied()
            if len(self._drawn) > KEPT_DRAWS:
                self._drawn.popitem(last=False)
        return arguments

    def _arguments(self, probe: Probe) -> Arguments:
        def draw(sampler: Sampler) -> Arguments:
            return self.program.arguments(dict(probe.sizes), sampler)

        if probe.special == "none" or is_scaled(probe):
            arguments = draw(Sampler(probe.seed, probe.distribution))
        else:
            found = with_special(draw, probe.special, probe.seed, probe.distribution)
            if found is None:
                raise OutsideDomain("no float input can hold a special value")
            arguments = found
        if probe.dtype != "native":
            arguments = _retyped(arguments, arrays.torch_dtype(probe.dtype))
        if is_scaled(probe):
            arguments = _scaled(arguments, probe.special)
        if probe.batch != "whole":
            arguments = self._rows(arguments, probe)
        if probe.rank:
            arguments = at_rank(self.program.task, arguments, probe.rank)
        if probe.layout in TIED:
            arguments = self._tied(arguments, probe)
            _keep_zeros(arguments, [draw(Sampler(0, name)) for name in ("constant", "declared")])
        return arguments

    def habits(self, probe: Probe, arguments: Arguments) -> Habits:
        """What the reference does to arguments of those sizes.

        Raises:
            OutsideDomain: it does not answer.
        """
        point = Probe(sizes=probe.sizes, dtype=probe.dtype, batch=probe.batch)
        if point not in self._habits:
            self._habits[point] = habits(self.make(probe, arguments)(), arguments)
        return self._habits[point]

    def hands_on(self, probe: Probe) -> bool:
        """Whether the reference's outputs lie in the memory of its arguments or its state, where the
        arguments are the probe's and lie in memory as they do there.

        Raises:
            OutsideDomain: it does not answer.
        """
        arguments = self.arguments(probe)
        return hands_on(self.make(probe, arguments)(), self._laid_out(arguments, probe))

    def _laid_out(self, arguments: Arguments, probe: Probe) -> Arguments:
        """Copies of the arguments that lie in memory as the probe's do; rows that are far apart there
        are merely apart."""
        if probe.layout == "far":
            probe = replace(probe, layout="padded")
        counter, untied = _Counter(), self._untied(probe, arguments)

        def lay(path: str, value: Any) -> Any:
            if not isinstance(value, torch.Tensor):
                return copy.copy(value)
            leaf = counter.next()
            plan = None if path in untied else _plan(value, probe, leaf)
            return value.clone() if plan is None else _placed(value, plan)

        return arguments.mapped(lay)

    def _finals(
        self, probe: Probe, arguments: Arguments
    ) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """The inputs, and the parameters and buffers, that the reference writes: what they hold after
        the call is a part of the answer. State is nobody's part where it is not matched by name, nor
        after a history, whose calls have written it too."""
        if probe.cotangent != "none":
            return (), ()
        written = self.habits(probe, arguments).writes
        inputs = {name for name, _ in arguments.tensors()}
        state = tuple(name for name in written if name not in inputs)
        asked = state if self.by_name and not probe.history else ()
        return tuple(name for name in written if name in inputs), asked

    def final_oracle(self, probe: Probe, arguments: Arguments, *, generic: bool) -> FinalOracle:
        """Of what the reference leaves in the arguments and in its state."""
        return FinalOracle(
            self.make(probe, arguments),
            arguments,
            generic=generic,
            names=self.habits(probe, arguments).writes,
            seed=probe.seed,
        )

    def _untied(self, probe: Probe, arguments: Arguments) -> frozenset[str]:
        """Arguments of whose elements no two may share memory: what writes them would write one twice,
        and torch itself defines no answer to that."""
        if probe.layout not in TIED:
            return frozenset()
        written = self.habits(probe, arguments).writes
        return frozenset((*self.program.task.declared.in_place, *written))

    def _rows(self, arguments: Arguments, probe: Probe) -> Arguments:
        """The arguments of a part of the batch.

        Raises:
            OutsideDomain: the task has no batch, or the batch no such part.
        """
        symbol = batches.symbol_of(self.program.task)
        if symbol is None:
            raise OutsideDomain("the number of rows of the first input is fixed")
        rows = probe.size(symbol.name)
        found = batches.span(probe.batch, rows)
        if found is None:
            raise OutsideDomain(f"a batch of {rows} has no such part")
        start, length = found

        def cut(path: str, value: Any) -> Any:
            for name, axis in symbol.axes:
                if name == path:
                    if value.shape[axis] != rows:
                        raise OutsideDomain(f"{path} has more than one row for each of the batch")
                    value = value.narrow(axis, start, length).contiguous()
            return value

        return arguments.mapped(cut)

    def _check_rows(self, probe: Probe, arguments: Arguments) -> None:
        """Raises OutsideDomain: in the reference a row hangs on the other rows of its batch."""
        symbol = batches.symbol_of(self.program.task)
        assert symbol is not None
        whole = self.arguments(probe.without(["batch"]))
        one, other = (
            Oracle(self.make(probe, given), given, generic=True).exact
            for given in (whole, arguments)
        )
        for all_rows, leaf in zip(one, other, strict=True):
            rows = batches.rows_of(
                all_rows.data, leaf.data.shape, probe.batch, probe.size(symbol.name)
            )
            if rows is None or not np.allclose(
                rows, leaf.data, rtol=ALIKE, atol=ALIKE * _largest(rows), equal_nan=True
            ):
                raise OutsideDomain("the reference does not treat the rows of a batch alike")

    def _check_rank(self, probe: Probe) -> None:
        """Raises OutsideDomain: the reference does not give at this rank what it gives for the same
        rows at its own, so that no candidate can be held to it."""
        probe = probe.without(["cotangent", "layout"])
        if probe not in self._unranked:
            try:
                self._unranked[probe] = strangeness(self, probe, ALIKE)
            except OutsideDomain as why:
                self._unranked[probe] = str(why)
        if self._unranked[probe]:
            raise OutsideDomain(self._unranked[probe])

    def gradients(self, probe: Probe, arguments: Arguments) -> Gradients:
        """The cotangents of a probe, and which gradients the reference has there.

        Raises:
            OutsideDomain: it has none, or no output can be laid out so.
        """
        given: dict[int, torch.Tensor] = {}

        def draw(index: int, output: torch.Tensor) -> torch.Tensor:
            shape = tuple(output.shape)
            drawn = cotangents.values(probe.cotangent, shape, probe.seed, index)
            given[index] = torch.from_numpy(np.array(drawn)).reshape(shape).to(output.dtype)
            return given[index]

        found = pull(self.make(probe, arguments)(), arguments, draw)
        # A candidate that names its parameters otherwise can be asked for those it is known to name.
        known = {name for name, _ in arguments.tensors()} | set(self.counterparts)
        names = tuple(name for name in found if self.by_name or name in known)
        if not names:
            raise OutsideDomain("the reference has no gradient")
        return Gradients(
            names=names,
            unasked=tuple(name for name in found if name not in names),
            cotangents=tuple(given.get(i) for i in range(max(given) + 1)),
        )

    def unasked(self, case: Case) -> tuple[str, ...]:
        """Parameters whose gradient a candidate is not asked for: its names of them are not known."""
        return self.gradients(case.probe, case.arguments).unasked

    def pulled(
        self, probe: Probe, reference: Callable[..., Any], arguments: Arguments
    ) -> list[tuple[str, torch.Tensor]]:
        """The gradients of `reference`, which may have been called before, by name."""
        drawn = self.gradients(probe, arguments).cotangents

        def given(index: int, output: torch.Tensor) -> torch.Tensor:
            found = drawn[index] if index < len(drawn) else None
            return torch.zeros_like(output) if found is None else found

        return list(pull(reference, arguments, given).items())

    def gradient_oracle(self, probe: Probe, arguments: Arguments) -> GradientOracle:
        found = self.gradients(probe, arguments)
        return GradientOracle(
            self.make(probe, arguments),
            arguments,
            generic=is_generic(probe),
            cotangents=found.cotangents,
            names=found.names,
            seed=probe.seed,
        )

    def make(self, probe: Probe, arguments: Arguments) -> Callable[[], Callable[..., Any]]:
        """A factory of fresh references for the case."""
        return lambda: self._reference(probe, arguments, WEIGHT_SEED)

    def _reference(self, probe: Probe, arguments: Arguments, seed: int) -> Callable[..., Any]:
        redrawn = probe.weights == "redrawn"
        reference = self.program.construct(arguments, seed=seed, redrawn=redrawn)
        if isinstance(reference, torch.nn.Module):
            if probe.dtype != "native":
                reference = reference.to(arrays.torch_dtype(probe.dtype))
            if probe.weights == "lattice":
                _put_on_lattice(reference)
            if probe.weights == "ones":
                _put_ones(reference)
        return reference

    def weights(
        self, probe: Probe, arguments: Arguments, *, seed: int = WEIGHT_SEED
    ) -> Weights | None:
        """The reference's state by name, or None where weights are matched by seed or absent."""
        if not self.by_name:
            return None
        reference = self._reference(probe, arguments, seed)
        if not isinstance(reference, torch.nn.Module):
            return None
        return {name: arrays.to_numpy(t).copy() for name, t in reference.state_dict().items()}

    def _calls(
        self,
        probe: Probe,
        arguments: Arguments,
        images: _Images,
        destinations: Mapping[str, TensorImage],
    ) -> tuple[tuple[Call, ...], Weights | None]:
        weights = self.weights(probe, arguments)
        if not probe.history:
            return (
                Call(args=images.args, kwargs=images.kwargs, cotangents=images.cotangents),
            ), weights
        calls: list[Call] = []
        last: dict[str, Any] = {}
        first = weights
        for name in probe.history:
            if name == "same":
                calls.append(
                    Call(args=images.args, kwargs=images.kwargs, cotangents=images.cotangents)
                )
            elif name == "parameter":
                if weights is None:
                    raise OutsideDomain("parameters can be changed only where they match by name")
                redrawn = replace(probe, weights="redrawn")
                other = self.weights(redrawn, arguments, seed=WEIGHT_SEED + 1)
                first, last["weights"] = other, weights
                calls.append(
                    Call(args=images.args, kwargs=images.kwargs, cotangents=images.cotangents)
                )
            else:
                shifted = replace(probe, seed=probe.seed + OTHER, special="none")
                drawn = self._images(self.arguments(shifted), shifted)
                given = {**drawn.kwargs, **destinations}
                calls.append(Call(args=drawn.args, kwargs=given, cotangents=images.cotangents))
                if name == "in-place":
                    last["in_place_of"] = len(calls) - 1
        calls.append(
            Call(args=images.args, kwargs=images.kwargs, cotangents=images.cotangents, **last)
        )
        return tuple(calls), first

    def _destinations(
        self, probe: Probe, arguments: Arguments
    ) -> tuple[dict[str, TensorImage], _Structure]:
        """Memory for the outputs where the caller gives it, holding what fresh memory holds, by the
        names of the arguments; and how the outputs are nested.

        Raises:
            UsageError: the contract names another number of them than the reference has outputs.
            OutsideDomain: the reference does not answer.
        """
        names = self.program.task.declared.destinations
        if not names:
            return {}, _Structure()
        oracle = Oracle(self.make(probe, arguments), arguments, generic=True)
        leaves = oracle.native
        if len(leaves) != len(names):
            raise UsageError(
                f"the contract names {len(names)} destinations, and the reference has {len(leaves)} "
                "outputs",
                todo="Name one keyword argument for each output, in order.",
            )
        images = {
            name: TensorImage.plain(_filled(leaf.data, FILL_BYTES[probe.fill]), leaf.dtype)
            for name, leaf in zip(names, leaves, strict=True)
        }
        return images, _Structure(oracle.structure, tuple(leaf.path for leaf in leaves))

    def _images(self, arguments: Arguments, probe: Probe) -> _Images:
        counter, untied = _Counter(), self._untied(probe, arguments)

        def image(path: str, value: Any) -> Any:
            if not isinstance(value, torch.Tensor):
                return value
            leaf = counter.next()
            plan = None if path in untied else _plan(value, probe, leaf)
            counter.applied += plan is not None and probe.layout != "contiguous"
            return _image(value, plan)

        args = arrays.map_leaves(arguments.args, image, "args")
        kwargs = arrays.map_leaves(dict(arguments.kwargs), image, "kwargs")
        if probe.layout != "contiguous" and not counter.applied:
            raise OutsideDomain(f"no input of this task can be laid out {probe.layout}")
        return _Images(args, kwargs)

    def _tied(self, arguments: Arguments, probe: Probe) -> Arguments:
        counter, untied = _Counter(), self._untied(probe, arguments)

        def tie(path: str, value: Any) -> Any:
            if not isinstance(value, torch.Tensor):
                return value
            leaf = counter.next()
            plan = None if path in untied else _plan(value, probe, leaf)
            if plan is None:
                return value
            tied = layouts.tie(arrays.to_numpy(value), plan)
            return arrays.from_numpy(tied, arrays.dtype_name(value.dtype))

        return arguments.mapped(tie)


@dataclass(frozen=True, slots=True)
class _Structure:
    words: str = ""
    paths: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class _Images:
    args: Any
    kwargs: Any
    cotangents: tuple[TensorImage | None, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Gradients:
    """What is asked of the backward pass at one point."""

    #: Inputs and parameters that the reference has a gradient for.
    names: tuple[str, ...]
    #: Parameters that it has one for, too, and of which the candidate's name is not known.
    unasked: tuple[str, ...]
    #: One for each tensor that the reference returns, None for those without gradient.
    cotangents: tuple[torch.Tensor | None, ...]

    def images(self, kind: str) -> tuple[TensorImage | None, ...]:
        """The cotangents as they lie in memory.

        Raises:
            OutsideDomain: none of them can lie so.
        """
        plans = [
            None if t is None else cotangents.plan(kind, tuple(t.shape), t.element_size())
            for t in self.cotangents
        ]
        if cotangents.has_layout(kind) and not any(plans):
            raise OutsideDomain(f"no output of this task can have a cotangent that is {kind}")
        return tuple(
            None if t is None else _image(t, plan)
            for t, plan in zip(self.cotangents, plans, strict=True)
        )


@dataclass(slots=True)
class _Counter:
    index: int = -1
    applied: int = 0

    def next(self) -> int:
        self.index += 1
        return self.index


def _largest(values: npt.NDArray[Any]) -> float:
    """The largest finite magnitude, 0 if there is none."""
    finite = np.abs(values[np.isfinite(values)])
    return float(finite.max()) if finite.size else 0.0


def is_generic(probe: Probe) -> bool:
    """Whether rounding errors on this probe's values behave like independent ones."""
    return (
        probe.distribution not in STRUCTURED
        and (probe.special == "none" or is_scaled(probe))
        and probe.layout not in TIED
    )


def is_scaled(probe: Probe) -> bool:
    return probe.special.startswith("scaled:")


def _scaled(arguments: Arguments, special: str) -> Arguments:
    """One float input times a power of two.

    Raises:
        OutsideDomain: there is no such input.
    """
    power, _, which = special.removeprefix("scaled:").partition("@")
    floats = [
        path
        for path, t in arguments.tensors()
        if t.is_floating_point() and not arrays.is_stored_float(t)
    ]
    if int(which) >= len(floats):
        raise OutsideDomain(f"there is no float input number {which}")
    chosen = floats[int(which)]
    return arguments.mapped(lambda path, x: x * 2.0 ** int(power) if path == chosen else x)


def _retyped(arguments: Arguments, dtype: torch.dtype) -> Arguments:
    def cast(path: str, value: Any) -> Any:
        if not isinstance(value, torch.Tensor) or not value.is_floating_point():
            return value
        # What is stored in eight bits is data, whatever dtype the task computes in.
        return value if arrays.is_stored_float(value) else value.to(dtype)

    return arguments.mapped(cast)


def _put_on_lattice(module: torch.nn.Module) -> None:
    """Gives every float parameter and buffer small integers, variances ones."""
    with torch.no_grad():
        for number, (name, tensor) in enumerate(module.state_dict().items()):
            if name.endswith("running_var"):
                tensor.fill_(1.0)
            elif tensor.is_floating_point():
                drawn = values.small_integers(Stream(WEIGHT_SEED, number), tensor.shape)
                tensor.copy_(torch.from_numpy(drawn))


def _put_ones(module: torch.nn.Module) -> None:
    with torch.no_grad():
        for tensor in module.state_dict().values():
            if tensor.is_floating_point():
                tensor.fill_(1.0)


def _keep_zeros(tied: Arguments, draws: list[Arguments]) -> None:
    """A zero pattern that the author's code makes (a triangular matrix) is part of the task.

    Raises:
        OutsideDomain: tying elements has filled one of its zeros.
    """
    for (path, tensor), *drawn in zip(
        tied.tensors(), *(arguments.tensors() for arguments in draws), strict=True
    ):
        zero = torch.ones(tensor.shape, dtype=torch.bool)
        for _, other in drawn:
            zero &= arrays.computable(other) == 0
        if tensor.is_floating_point() and bool((zero & (arrays.computable(tensor) != 0)).any()):
            raise OutsideDomain(f"the layout would fill the zero pattern of {path}")


def _plan(tensor: torch.Tensor, probe: Probe, leaf: int) -> layouts.LayoutPlan | None:
    integer = not (tensor.is_floating_point() or tensor.is_complex())
    return layouts.plan(
        tuple(tensor.shape), tensor.element_size(), probe.layout, leaf, integer, probe.seed
    )


def _image(tensor: torch.Tensor, plan: layouts.LayoutPlan | None) -> TensorImage:
    content = arrays.to_numpy(tensor)
    dtype = arrays.dtype_name(tensor.dtype)
    shape = tuple(tensor.shape)
    if plan is None:
        return TensorImage(
            shape=shape,
            dtype=dtype,
            strides=layouts.contiguous(shape),
            offset=0,
            storage_elements=int(np.prod(shape, dtype=np.int64)),
            values=content,
            gaps=False,
            sparse=False,
        )
    return TensorImage(
        shape=shape,
        dtype=dtype,
        strides=plan.strides,
        offset=plan.offset,
        storage_elements=plan.storage_elements,
        values=content,
        gaps=plan.gaps,
        sparse=plan.sparse,
    )


def _placed(tensor: torch.Tensor, plan: layouts.LayoutPlan) -> torch.Tensor:
    storage = torch.zeros(plan.storage_elements, dtype=tensor.dtype)
    view = storage.as_strided(tuple(tensor.shape), plan.strides, plan.offset)
    if plan.ties == "none":
        return view.copy_(tensor)
    for row in range(tensor.shape[0]):
        view[row].copy_(tensor[row])
    return view


def _filled(like: npt.NDArray[Any], byte: int) -> npt.NDArray[Any]:
    filled = np.empty_like(like, order="C")
    filled.reshape(-1).view(np.uint8)[...] = byte
    return filled


def _digest(arguments: Arguments) -> str:
    state = hashlib.sha256()

    def add(path: str, value: Any) -> Any:
        if isinstance(value, torch.Tensor):
            state.update(f"{path}{value.dtype}{tuple(value.shape)}".encode())
            state.update(arrays.to_numpy(value).tobytes())
        else:
            state.update(f"{path}={value!r}".encode())
        return value

    arrays.map_leaves(arguments.init_args, add, "init")
    arrays.map_leaves(dict(arguments.init_kwargs), add, "init")
    arrays.map_leaves(arguments.args, add, "args")
    arrays.map_leaves(dict(arguments.kwargs), add, "kwargs")
    return state.hexdigest()
