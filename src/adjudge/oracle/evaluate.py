"""The oracle for one case: float64 answer, native answer, envelopes, comparison, grade."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from adjudge import arrays
from adjudge.gates.protocol import Comparison
from adjudge.inputs.specials import HUGE_MARGIN
from adjudge.observation import Observation
from adjudge.oracle import compare as comparing
from adjudge.oracle import exactly, rules, storage
from adjudge.oracle.clones import clone
from adjudge.oracle.lifted import Annihilating, Lifted, Textbook, lifting
from adjudge.oracle.orders import Change, Orders
from adjudge.oracle.regimes import (
    BF16,
    FP16,
    REGIMES,
    Regime,
    regime,
)
from adjudge.oracle.repeats import repeats
from adjudge.program import Arguments, OutsideDomain, answer

Array = npt.NDArray[Any]
Make = Callable[[], Callable[..., Any]]

#: Scales of the finite values put in place of NaN and infinities, to see which outputs depend on them
#: at all. The values differ from element to element: a whole row of one constant would leave many
#: functions of it (softmax) unmoved.
_SCALES = (0.5, -1.0, 3.0, -1e4)

#: A unit of rounding with which a sum of a thousand integers that come to 2**24 errs by less than a
#: thousandth, and float64 still shows it.
_TIE = 2.0**-44

#: Operations, and elements read by all of them, past which a reference counts as long: a run with errors
#: then takes about a second.
LONG, HEAVY = 1000, 1 << 26


@dataclass(frozen=True, slots=True)
class Leaf:
    """One output of the reference."""

    path: str
    data: Array
    dtype: str


class Oracle:
    """Evaluates one reference on one set of arguments, as little as the questions need.

    Args:
        make: a fresh reference each time (native dtype, weights set).
        arguments: native-dtype tensors.
        generic: False where rounding errors line up (constant, sorted, lattice inputs): then a
            conviction needs the worst-case bound.
        seed: of the sampled errors.
    """

    def __init__(self, make: Make, arguments: Arguments, *, generic: bool, seed: int = 0) -> None:
        self._make = make
        self._arguments = arguments
        self._generic = generic
        self._seed = seed
        #: Runs drawn and the sums of their squared deviations, by regime, law and stream.
        self._squares: dict[tuple[str, bool, int], tuple[int, list[Array]]] = {}
        #: The mean squared deviation of every run, by the same, one list an output.
        self._means: dict[tuple[str, bool, int], list[list[float]]] = {}
        self.structure = ""
        #: Operations met in runs with errors for which there is no bound.
        self.unruled: set[str] = set()

    @cached_property
    def native(self) -> list[Leaf]:
        """The trusted answer in the reference's own dtype.

        Raises:
            OutsideDomain: the reference does not answer.
        """
        self.structure, leaves = self._evaluated(self._make(), self._arguments.copied())
        return leaves

    @cached_property
    def exact(self) -> list[Leaf]:
        """The same in float64."""
        mode = Lifted(self.dtype)
        leaves = self._lifted_run(mode)
        self._met = mode.met
        self._count, self._read = mode.count, mode.read
        return leaves

    @cached_property
    def cut(self) -> list[Leaf]:
        """The same with the operands of all products cut toward zero, as tensor cores do."""
        return self._lifted_run(Lifted(self.dtype, rules.Cutting()))

    @cached_property
    def owes_bits(self) -> bool:
        """Whether every honest kernel gives the same bits on these very inputs (see `exactly`), as the
        native reference does."""
        wide = [t for _, t in self._wide_arguments.tensors() if t.is_floating_point()]
        if isinstance(self._wide_reference, torch.nn.Module):
            state = self._wide_reference.state_dict().values()
            wide += [t for t in state if t.is_floating_point()]
        if self.dtype is not torch.float32 or not all(map(exactly.are_integers, wide)):
            return False
        noise = exactly.Exactness()
        mode = Lifted(self.dtype, noise)
        self._lifted_run(mode)
        same = all(
            np.array_equal(n.data.astype(np.float64), e.data.astype(np.float64))
            for n, e in zip(self.native, self.exact, strict=True)
        )
        return noise.holds and exactly.in_any_order(mode.met) and same

    @cached_property
    def owed(self) -> list[Array]:
        """Where every honest kernel gives the same bits on these very inputs, as the native reference
        does: everywhere or nowhere in float32, element by element in half precision."""
        nowhere = [np.zeros(leaf.data.shape, dtype=bool) for leaf in self.exact]
        if self.dtype not in (torch.float16, torch.bfloat16):
            return [~none for none in nowhere] if self.owes_bits else nowhere
        mode = Lifted(self.dtype, exactly.Traced(self.dtype))
        traced = self._lifted_run(mode)
        if not exactly.traceable(mode.met):
            return nowhere
        return [
            (t.data == e.data) & (n.data.astype(np.float64) == e.data.astype(np.float64))
            for t, e, n in zip(traced, self.exact, self.native, strict=True)
        ]

    @cached_property
    def tied(self) -> list[Array]:
        """Where an answer that is all integers hangs on a tie: errors too small to tell two sums apart
        move it by a whole one."""
        spread = self.envelope(Regime("ties", _TIE, _TIE, 0.0), comparing.SAMPLES)
        # Off by one in one run of them all.
        return [s > 0.5 / np.sqrt(comparing.SAMPLES) for s in spread]

    @cached_property
    def dtype(self) -> torch.dtype:
        """The float dtype that the reference computes in."""
        tensors = [t for _, t in self._arguments.tensors()]
        reference = self._make()
        if isinstance(reference, torch.nn.Module):
            tensors += list(reference.parameters())
        floats = [t.dtype for t in tensors if t.is_floating_point()]
        # Nothing is computed in eight bits: such tensors are stored so, and widened before use.
        computed = [dtype for dtype in floats if dtype.itemsize > 1]
        return computed[0] if computed else torch.float32

    @cached_property
    def required(self) -> str:
        """The regime that the reference's own default flags give on a GPU: cuDNN convolutions and
        recurrent layers default to tf32, matrix products do not; half-precision references to their
        own operands."""
        try:
            _ = self.exact
        except OutsideDomain:
            return "fp32"
        if self.dtype in (torch.float16, torch.bfloat16):
            return "fp16xfp32" if self.dtype is torch.float16 else "bf16xfp32"
        reference = self._wide_reference
        recurrent = isinstance(reference, torch.nn.Module) and any(
            isinstance(module, torch.nn.RNNBase) for module in reference.modules()
        )
        return "tf32" if recurrent or "convolution" in self._met else "fp32"

    @cached_property
    def long(self) -> bool:
        """Whether a run of the reference takes about a second: it is many operations (a recurrence over
        time), or large ones."""
        operations, elements = self.work
        return operations > LONG or elements > HEAVY

    @property
    def work(self) -> tuple[int, int]:
        """Primitive operations of the reference, and the elements that all of them read.

        Raises:
            OutsideDomain: the reference does not answer.
        """
        _ = self.exact
        return self._count, self._read

    @cached_property
    def signs_zero(self) -> bool:
        """Whether the sign of a zero result is definite: products and moves keep it in any order of
        work, a sum or a maximum does not."""
        _ = self.exact
        return self._met <= rules.SIGNED

    def compare(
        self, observation: Observation, name: str, *, confirm: bool = False, lenient: bool = False
    ) -> Comparison:
        """One observation against this oracle in the named regime.

        Args:
            confirm: draw the envelope of a conviction again, from fresh and many more runs.
            lenient: convict of gross errors only.

        Raises:
            OutsideDomain: the reference does not answer.
        """
        found = comparing.metadata(observation, self.native, self._structure())
        if found is not None:
            return found
        if comparing.equal_bits(observation, self.native):
            return Comparison(outcome="equal")
        regime = self._regime(name)
        found = self._judged(observation, regime, widen=True, confirm=confirm, lenient=lenient)
        if found.ok and not lenient:
            return storage.through_bfloat16(observation, self.native, self.exact) or found
        return found

    def compare_exact(self, observation: Observation) -> Comparison | None:
        """One observation against the float64 answer, bit for bit where that is owed; None where it is
        nowhere, and where nothing is added up: what differs then is no matter of sums. Nor is which of
        equal sums an index names.

        Raises:
            OutsideDomain: the reference does not answer.
        """
        if not any(owed.any() for owed in self.owed) or not self._reading.adds:
            return None
        found = comparing.metadata(observation, self.native, self._structure())
        found = found or comparing.exactly(observation, self.exact, self.owed)
        if found.outcome != "value" or self.dtype is not torch.float32:
            return found
        certain = [owed & ~tied for owed, tied in zip(self.owed, self.tied, strict=True)]
        return comparing.exactly(observation, self.exact, certain)

    def compare_gap(self, observation: Observation, name: str, narrow: str = "") -> Comparison:
        """One observation against the worst that all roundings of the named regime come to together, for
        inputs on which something lost is larger than that.

        Args:
            narrow: as in `grade`.

        Raises:
            OutsideDomain: the reference does not answer.
        """
        found = comparing.metadata(observation, self.native, self._structure())
        if found is not None:
            return found
        if comparing.equal_bits(observation, self.native):
            return Comparison(outcome="equal")
        regime = self._narrowed(name, narrow)
        # Few runs acquit: they are those that a comparison has drawn.
        first = comparing.beyond_roundings(self, observation, regime, comparing.FIRST)
        if first.ok:
            return first
        return comparing.beyond_roundings(self, observation, regime, comparing.SAMPLES)

    def flushed(self, observation: Observation, above: float = 0.0) -> tuple[int, int]:
        """(elements that are zero though they should be subnormal, elements that should be): where the
        float64 answer and the native one are both subnormal, and at least two spacings large.

        Args:
            above: only elements above that share of the least normal number count.

        Raises:
            OutsideDomain: the reference does not answer.
        """
        if comparing.metadata(observation, self.native, self._structure()) is not None:
            return 0, 0
        zero = total = 0
        for output, native, exact in zip(observation.outputs, self.native, self.exact, strict=True):
            if not output.dtype.startswith(("float", "bfloat")):
                continue
            info = torch.finfo(arrays.torch_dtype(output.dtype))
            least = float(info.smallest_normal) * max(2 * float(info.eps), above)
            truth = np.abs(exact.data.astype(np.float64))
            should = (truth >= least) & (truth < float(info.smallest_normal))
            should &= native.data.astype(np.float64) != 0
            zero += int((should & (output.data.astype(np.float64) == 0)).sum())
            total += int(should.sum())
        return zero, total

    def grade(
        self, observation: Observation, names: tuple[str, ...] = REGIMES, narrow: str = ""
    ) -> str:
        """The first regime whose envelope holds, "none" if none does. Never widened by the native
        reference's own error.

        Args:
            names: the regimes that come into question, strictest first.
            narrow: "factors" or "sums" takes of a regime only what NARROW_FACTORS and NARROW_SUMS are
                named for.

        Raises:
            OutsideDomain: the reference does not answer.
        """
        if comparing.metadata(observation, self.native, self._structure()) is not None:
            return "none"
        for name in names:
            found = self._narrowed(name, narrow)
            verdict = self._judged(observation, found, widen=False, tight=narrow == "sums")
            # Two accumulators are only a factor of eight apart: the narrower explains what lies outside
            # one spread of the other.
            fits = narrow != "sums" or verdict.rms <= 1.0 or name == names[-1]
            if verdict.ok and fits:
                return name
        return "none"

    def exceeds(self, observation: Observation, name: str, narrow: str) -> bool:
        """Whether an error is larger than any that a regime's narrow part can make, see `grade`.

        Raises:
            OutsideDomain: the reference does not answer.
        """
        if comparing.metadata(observation, self.native, self._structure()) is not None:
            return False
        found = self._narrowed(name, narrow)
        verdict = self._judged(observation, found, widen=True)
        return verdict.outcome == "value" and bool(verdict.beyond_worst_case)

    def _judged(
        self,
        observation: Observation,
        found: Regime,
        *,
        widen: bool,
        confirm: bool = False,
        lenient: bool = False,
        tight: bool = False,
    ) -> Comparison:
        """About the float64 answer, or one between it and that of operands which are cut: honest errors
        about either are as small as the envelope, and one that held both would hold narrower operands.

        Args: as of `Judgement`.
        """
        judge = partial(
            comparing.Judgement, self, observation, found,
            widen=widen, confirm=confirm, lenient=lenient, tight=tight,
        )  # fmt: skip
        verdict = judge().verdict()
        if verdict.outcome != "value" or not found.cuts:
            return verdict
        shapes = zip(self.cut, self.exact, observation.outputs, strict=True)
        if any(not a.data.shape == b.data.shape == c.data.shape for a, b, c in shapes):
            return verdict
        about = comparing.between(self.exact, self.cut, observation)
        cut = judge(about=about).verdict()
        return cut if cut.ok else verdict

    def _narrowed(self, name: str, narrow: str) -> Regime:
        found = self._regime(name)
        if narrow == "factors":
            return replace(found, name=f"{name}, factors", reads_sums=True)
        if narrow == "sums":
            store = self._regime("fp32").store
            return replace(found, name=f"{name}, sums", store=store, operand=0.0)
        return found

    @cached_property
    def isolates_sums(self) -> bool:
        """Whether all that contractions and sums read on these inputs has few bits, so that what is lost
        is lost in an accumulator."""
        return self._reading.holds and self.sums

    @property
    def triangular(self) -> bool:
        """Whether the reference takes a triangle of something: a causal mask leaves out the keys that
        lie behind all queries."""
        _ = self.exact
        return not self._met.isdisjoint(("tril", "triu"))

    @property
    def weighs(self) -> bool:
        """Whether the reference may divide by a sum of powers, as a softmax does."""
        _ = self._reading
        return bool(self._powers) and self.sums

    @property
    def sums(self) -> bool:
        """Whether the reference multiplies factors or adds up terms at all."""
        return self._reading.reads > 0

    @property
    def outgrows_float16(self) -> bool:
        """Whether what is summed or multiplied, or a sum in some order, is beyond a float16."""
        return self._reading.largest > torch.finfo(torch.float16).max

    @property
    def sum_bits(self) -> int:
        """An accumulator of so many bits holds every sum of the reference, in any order."""
        return self._reading.bits

    @cached_property
    def _reading(self) -> exactly.Reading:
        noise = exactly.Reading()
        mode = Lifted(self.dtype, noise)
        self._lifted_run(mode)
        self._powers = mode.met & {"exp", "exp2"}
        return noise

    def _structure(self) -> str:
        assert self.native is not None
        return self.structure

    def _regime(self, name: str) -> Regime:
        """The regime, not finer than the dtype the reference itself stores in."""
        found = regime(name)
        floor = {torch.float16: FP16, torch.bfloat16: BF16}.get(self.dtype, 0.0)
        return replace(found, store=max(found.store, floor))

    def envelope(self, found: Regime, samples: int, *, fresh: bool = False) -> list[Array]:
        """Root mean square deviation of each element over `samples` runs, one array an output.

        The worst-case law is used where the inputs are not generic. Asking for more runs later draws
        only those that are missing.
        """
        return self._drawn(found, samples, worst=not self._generic, stream=int(fresh))

    def effective(self, found: Regime, samples: int, *, fresh: bool = False) -> list[float]:
        """How many independent errors the mean square over each output varies like, from run to run:
        2 mean**2 / variance (Welch and Satterthwaite). One where a single error reaches all elements.
        """
        self.envelope(found, samples, fresh=fresh)
        return [
            2 * float(np.mean(m)) ** 2 / max(float(np.var(m, ddof=1)), 1e-300) if any(m) else np.inf
            for m in self._means[found.name, not self._generic, int(fresh)]
        ]

    def worst(self, found: Regime, samples: int = 8) -> list[Array]:
        """The same under the worst-case law: sqrt(3) turns the spread of a uniform error into its
        amplitude."""
        return [s * np.sqrt(3.0) for s in self._drawn(found, samples, worst=True, stream=2)]

    def _drawn(self, found: Regime, samples: int, *, worst: bool, stream: int) -> list[Array]:
        key = (found.name, worst, stream)
        if key not in self._squares:
            self._squares[key] = (0, [np.zeros(leaf.data.shape) for leaf in self.exact])
            self._means[key] = [[] for _ in self.exact]
        done, squares = self._squares[key]
        for number in range(done, samples):
            seed = (self._seed * 1_000_003 + number + (stream << 20)) & 0x7FFFFFFF
            noise = rules.Noise(found, seed, worst=worst, repeats=repeats(self))
            mode = Lifted(self.dtype, noise)
            leaves = self._lifted_run(mode)
            self.unruled |= mode.unruled
            for index, (leaf, centre) in enumerate(zip(leaves, self.exact, strict=True)):
                with np.errstate(all="ignore"):
                    off = leaf.data.astype(np.float64) - centre.data.astype(np.float64)
                    squared = off * off
                    mean = float(squared.mean()) if squared.size else 0.0
                    if not np.isfinite(mean):
                        squared = np.nan_to_num(squared, nan=0.0, posinf=0.0, neginf=0.0)
                        mean = float(squared.mean())
                squares[index] += squared
                self._means[key][index].append(mean)
        runs = max(done, samples)
        self._squares[key] = (runs, squares)
        return [np.sqrt(total / runs) for total in squares]

    @cached_property
    def independent(self) -> list[Array]:
        """Where outputs do not move with finite values in place of the non-finite inputs: their
        non-finite value comes from 0 * inf, and either class is right."""
        if not _has_nonfinite(self._arguments):
            return [np.zeros(leaf.data.shape, dtype=bool) for leaf in self.exact]
        answers = []
        for scale in _SCALES:
            try:
                answers.append(
                    self._lifted_run(Lifted(self.dtype), _finite(self._arguments, scale))
                )
            except OutsideDomain:
                continue
        still = []
        for index, leaf in enumerate(self.exact):
            same = np.ones(leaf.data.shape, dtype=bool)
            for other in answers[1:]:
                a, b = answers[0][index].data, other[index].data
                if a.shape != leaf.data.shape or b.shape != leaf.data.shape:
                    return [np.zeros(x.data.shape, dtype=bool) for x in self.exact]
                same &= (a == b) | (np.isnan(a) & np.isnan(b))
            still.append(same if answers else np.zeros(leaf.data.shape, dtype=bool))
        return still

    @cached_property
    def _wide_reference(self) -> Callable[..., Any]:
        reference = self._make()
        return reference.double() if isinstance(reference, torch.nn.Module) else reference

    @cached_property
    def _holds_tensors(self) -> bool:
        """Whether the reference may use float tensors that neither a state dict nor the inputs hold."""
        reference = self._wide_reference
        if not isinstance(reference, torch.nn.Module):
            return True
        return any(
            isinstance(value, torch.Tensor)
            for module in reference.modules()
            for value in vars(module).values()
        )

    @cached_property
    def _wide_arguments(self) -> Arguments:
        return _double(self._arguments)

    @cached_property
    def forgiven(self) -> list[Array]:
        """Where the class does not hang on zero times infinity."""
        if not _has_nonfinite(self._arguments):
            return [np.ones(leaf.data.shape, dtype=bool) for leaf in self.exact]
        return [
            comparing.classes(ours.data) == comparing.classes(theirs.data)
            for ours, theirs in zip(
                self._lifted_run(Annihilating(self.dtype)), self.exact, strict=True
            )
        ]

    @cached_property
    def orders(self) -> list[list[Array]]:
        """The classes of every output under other orders of products and sums (see `orders`), where
        infinities or huge values are among the inputs."""

        def run(mode: Lifted, given: Arguments, change: Change | None) -> list[Array]:
            return [leaf.data for leaf in self._lifted_run(mode, given, change)]

        found = Orders(run, self.dtype, self._wide_arguments)
        outputs = found.of_infinities() if _has_nonfinite(self._arguments) else []
        outputs += found.of_huge() if _with_huge(self._arguments) is not None else []
        return [list(map(comparing.classes, one)) for one in outputs]

    @cached_property
    def textbook(self) -> list[Leaf] | None:
        """The native answer with norms in their textbook form, where inputs are huge: what then
        overflows may overflow in an honest kernel too. None where no input is, or it does not answer."""
        if _with_huge(self._arguments) is None:
            return None
        reference = self._make()
        try:
            with torch.no_grad(), Textbook():  # type: ignore[no-untyped-call]
                leaves = self._evaluated(reference, self._arguments.copied())[1]
        except OutsideDomain:
            return None
        shapes = [leaf.data.shape for leaf in leaves]
        return leaves if shapes == [leaf.data.shape for leaf in self.native] else None

    @cached_property
    def settled(self) -> list[Array]:
        """Where the class of the native answer stays the same with every huge input at the largest
        finite value, and in the textbook form, and all of them are near the exact one: elsewhere what
        overflows depends on the order of a sum, or on how a norm is taken."""
        largest = _with_huge(self._arguments)
        if largest is None:
            return [np.ones(leaf.data.shape, dtype=bool) for leaf in self.native]
        try:
            _, leaves = self._evaluated(self._make(), largest)
        except OutsideDomain:
            return [np.zeros(leaf.data.shape, dtype=bool) for leaf in self.native]
        return [
            _same_class(ours, theirs)
            & _same_class(ours, plain)
            & _near(ours, plain)
            & _near(ours, exact)
            for ours, theirs, plain, exact in zip(
                self.native, leaves, self.textbook or self.native, self.exact, strict=True
            )
        ]

    def _lifted_run(
        self,
        mode: Lifted,
        arguments: Arguments | None = None,
        change: Change | None = None,
    ) -> list[Leaf]:
        reference = self._wide_reference
        if isinstance(reference, torch.nn.Module):
            # Every run starts from the same state; copying it is cheaper than drawing it.
            reference = clone(reference)
            if change is not None:
                for tensor in reference.state_dict().values():
                    tensor.copy_(change(tensor))
        wide = self._wide_arguments if arguments is None else _double(arguments)
        with lifting(mode, widening=self._holds_tensors):
            return self._evaluated(reference, wide.copied())[1]

    def _evaluated(
        self, reference: Callable[..., Any], arguments: Arguments
    ) -> tuple[str, list[Leaf]]:
        """What is judged of the reference (its outputs): structure in words, and leaves.

        Raises:
            OutsideDomain: the reference does not answer.
        """
        return _leaves(answer(reference, arguments))

    @property
    def chooses(self) -> bool:
        """Whether elements may hang on a choice that rounding decides."""
        return False

    def unsettled(self, found: Regime) -> list[Array] | None:
        """Where an element hangs on a choice that rounding decides; None where none can."""
        return None


def _same_class(ours: Leaf, theirs: Leaf) -> Array:
    if ours.data.shape != theirs.data.shape:
        return np.zeros(ours.data.shape, dtype=bool)
    same: Array = comparing.classes(ours.data) == comparing.classes(theirs.data)
    return same


def _near(ours: Leaf, theirs: Leaf) -> Array:
    """Whether two answers are of one size: an intermediate value that overflows in one of them alone
    leaves a finite answer that has nothing to do with the other (x / inf is 0)."""
    a, b = (leaf.data.astype(np.float64) for leaf in (ours, theirs))
    with np.errstate(invalid="ignore", over="ignore"):
        far: Array = np.abs(a - b) > 0.5 * np.fmax(np.abs(a), np.abs(b))
    return ~far


def _double(arguments: Arguments) -> Arguments:
    def widen(path: str, value: Any) -> Any:
        if isinstance(value, torch.Tensor) and value.is_floating_point():
            return value.double()
        return value

    return arguments.mapped(widen)


def _has_nonfinite(arguments: Arguments) -> bool:
    return any(
        t.is_floating_point() and not bool(arrays.computable(t).isfinite().all())
        for _, t in arguments.tensors()
    )


def _with_huge(arguments: Arguments) -> Arguments | None:
    """The arguments with huge values raised to the largest finite one; None if there are none."""
    found = False

    def raised(path: str, item: Any) -> Any:
        nonlocal found
        if not isinstance(item, torch.Tensor) or not item.is_floating_point():
            return item
        largest = torch.finfo(item.dtype).max
        values = arrays.computable(item)
        huge = values.isfinite() & (values.abs() >= largest / HUGE_MARGIN)
        found = found or bool(huge.any())
        return torch.where(huge, values.sign() * largest, values).to(item.dtype)

    changed = arguments.mapped(raised)
    return changed if found else None


def _finite(arguments: Arguments, scale: float) -> Arguments:
    generator = torch.Generator().manual_seed(0)

    def replaced(path: str, item: Any) -> Any:
        if isinstance(item, torch.Tensor) and item.is_floating_point():
            drawn = torch.randn(item.shape, generator=generator, dtype=torch.float64) * scale
            values = arrays.computable(item)
            return torch.where(values.isfinite(), values, drawn.to(values.dtype)).to(item.dtype)
        return item

    return arguments.mapped(replaced)


def _leaves(result: Any) -> tuple[str, list[Leaf]]:
    """Structure in words and leaves, as the worker reports them."""
    leaves: list[Leaf] = []

    def leaf(path: str, value: Any) -> Any:
        if isinstance(value, torch.Tensor):
            leaves.append(Leaf(path, arrays.to_numpy(value).copy(), arrays.dtype_name(value.dtype)))
            return "tensor"
        if isinstance(value, (bool, int, float)):
            tensor = torch.tensor(value)
            leaves.append(Leaf(path, arrays.to_numpy(tensor), arrays.dtype_name(tensor.dtype)))
            return "number"
        return "none" if value is None else type(value).__name__

    shown = arrays.map_leaves(result, leaf)
    return str(shown).replace("'", ""), leaves
