"""Oracle: one case's right answer, and the judgement of an observation against it."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from adjudge import arrays
from adjudge.gates.protocol import Comparison
from adjudge.observation import Observation
from adjudge.oracle import compare, statistics
from adjudge.oracle.classes import FINITE, classes
from adjudge.oracle.compare import Offence
from adjudge.oracle.envelope import AMPLIFICATION, Runs, Spread
from adjudge.oracle.leaves import Leaf, leaves_of, structure_of
from adjudge.oracle.regimes import BY_NAME, REGIMES, floor_of, native_dtype
from adjudge.program import Arguments, OutsideDomain

Array = npt.NDArray[Any]

#: Samples of the first look. A candidate within NEAR of them is within any later bound.
FEW = 8
#: Smaller than half of the multiple at 32 samples and one element (1.8 × 8.5), so that the scatter
#: of a root mean square of 8 (1 / √16 = 25%) cannot matter.
NEAR = 4.0
CONFIRMING = 128
#: Runs with amplified errors. A value closer to a comparison than the envelope flips in about half
#: of them, so that one that none of 8 shows has a probability below 1%; CONFIRMING doubles them.
FLIPPING = 8
#: Runs that estimate the worst case, half of them coherent.
WORST = 16
#: Seconds that a confirmation may take; with fewer samples the multiple is larger, never smaller.
CONFIRM_SECONDS = 20.0
#: An op that has no rule was given four roundings of its result, which may be far too few.
UNKNOWN_WIDTH = 16.0
#: Above this share of excluded elements a clean comparison says nothing.
EXCLUDED = 0.1
#: Finite stand-ins for non-finite inputs, of every sign and scale.
STAND_INS = (1.0, -2.0, 1e3, -1e3, 1e18, -1e18)


@dataclass(slots=True)
class _Leaf:
    """One output of the observation beside what is known of it."""

    native: Leaf
    exact: Array
    got: Array
    #: True where values are compared.
    counted: Array
    #: True where the oracle is not definite.
    excluded: Array


class Oracle:
    """The reference on one set of arguments.

    Args:
        make: returns a fresh reference (module or function) in its native dtype.
        arguments: tensors in native dtype; never modified.
        generic: False where rounding errors line up (constant, sorted, tied values), so that a
            conviction needs the worst-case bound.
        seed: of the errors.
        samples: float64 runs with errors that a verdict rests on.

    Raises:
        OutsideDomain: (from every method) the native reference does not answer.
    """

    def __init__(
        self,
        make: Callable[[], Callable[..., Any]],
        arguments: Arguments,
        *,
        generic: bool,
        seed: int = 0,
        samples: int = 32,
    ) -> None:
        self.make = make
        self.arguments = arguments
        self.generic = generic
        self.samples = samples
        self.seed = seed
        self.structure = ""
        self._native: list[Leaf] | None = None
        self._exact: list[Array] | None = None
        self._runs: Runs | None = None
        self._failure = ""
        self._spreads: dict[tuple[str, str], Spread] = {}
        self._flips: dict[tuple[str, int], list[Array]] = {}
        self._standing: list[Array] | None = None
        self._seconds = 0.0

    @property
    def unknown(self) -> tuple[str, ...]:
        """Ops that have no rule, met so far."""
        return tuple(sorted(self._runs.unknown)) if self._runs else ()

    def native(self) -> list[Leaf]:
        """The reference's own answer in its native dtype."""
        if self._native is None:
            reference = self.make()
            args = arrays.map_leaves(self.arguments.args, _fresh)
            kwargs = arrays.map_leaves(dict(self.arguments.kwargs), _fresh)
            try:
                with torch.random.fork_rng(devices=[]), torch.no_grad():
                    torch.manual_seed(self.seed)
                    result = reference(*args, **kwargs)
            except Exception as error:
                raise OutsideDomain(f"{type(error).__name__}: {error}") from error
            self.structure = structure_of(result)
            self._native = leaves_of(result)
        return self._native

    def exact(self) -> list[Leaf]:
        """The answer in float64 (integers and booleans as they are)."""
        native = self.native()
        return [
            Leaf(n.path, e, "float64" if n.is_float else n.dtype, n.scalar)
            for n, e in zip(native, self._exact_values(), strict=True)
        ]

    def compare(self, observation: Observation, regime: str) -> Comparison:
        """The observation against the oracle in `regime`, computing no more than it takes."""
        native = self.native()
        broken = compare.metadata(native, observation.outputs)
        if broken is not None:
            return broken
        total = sum(leaf.data.size for leaf in native)
        pairs = list(zip(native, observation.outputs, strict=True))
        if all(compare.same_bits(n.data, o.data) for n, o in pairs):
            return Comparison(outcome="equal", total=total, exact=True)
        return self._judged(observation, regime, widen=True)

    def grade(self, observation: Observation) -> str:
        """The strictest regime that the observation meets, or "none". Measured against float64: the
        native reference's own error does not widen it."""
        if not observation.answered or compare.metadata(self.native(), observation.outputs):
            return "none"
        for regime in REGIMES:
            if self._judged(observation, regime, widen=False).outcome == "within":
                return regime
        return "none"

    def _judged(self, observation: Observation, regime: str, *, widen: bool) -> Comparison:
        try:
            leaves = [
                self._leaf(i, o.data) for i, o in enumerate(observation.outputs)
            ]
            return self._verdict(leaves, regime, widen=widen)
        except OutsideDomain:
            raise
        except Exception as error:
            what = f"{type(error).__name__}: {error}".strip().splitlines()[0]
            return Comparison(
                outcome="undecided", reason=f"the reference has no float64 evaluation: {what}"
            )

    def _leaf(self, i: int, data: Array) -> _Leaf:
        native = self.native()[i]
        exact = self._exact_values()[i]
        got = compare.widened(data).reshape(native.data.shape)
        finite = np.ones(native.data.shape, dtype=bool)
        return _Leaf(native, exact, got, finite, ~finite)

    def _exact_values(self) -> list[Array]:
        if self._exact is None:
            native = self.native()
            base = native_dtype(self.arguments, self.make())
            self._runs = Runs(self.make, self.arguments, base, self.seed)
            start = time.perf_counter()
            values = self._runs.exact()
            self._seconds = time.perf_counter() - start
            if [v.shape for v in values] != [n.data.shape for n in native]:
                raise ValueError("the shape of its answer depends on rounding")
            self._exact = values
        return self._exact

    # Judgement, cheapest first.

    def _verdict(self, leaves: list[_Leaf], regime: str, *, widen: bool) -> Comparison:
        offence = self._class_offence(leaves)
        if offence is not None:
            return self._class_comparison(leaves, offence)
        if not any(self._disagree(leaf) for leaf in leaves):
            return self._within(leaves, rms=0.0)
        if widen and self._no_worse_than_native(leaves):
            return self._within(leaves, rms=self._rms_to_native(leaves))
        few = self._spread(regime, FEW)
        if self._near(leaves, few):
            return self._within(leaves, rms=self._rms(leaves, few))
        found = self._beyond(leaves, regime, self._spread(regime, self.samples), FLIPPING, widen)
        if found.ok:
            return found
        if found.broken:
            count = self._affordable()
            fresh = self._spread(regime, count, fresh=True)
            found = self._beyond(leaves, regime, fresh, 2 * FLIPPING, widen)
        return found

    def _disagree(self, leaf: _Leaf) -> bool:
        return bool(((leaf.got != leaf.exact) & leaf.counted).any())

    def _affordable(self) -> int:
        each = max(1e-5, self._seconds)
        return int(min(CONFIRMING, max(self.samples, CONFIRM_SECONDS / each)))

    def _within(self, leaves: list[_Leaf], *, rms: float, excess: float = 0.0) -> Comparison:
        total = sum(leaf.got.size for leaf in leaves)
        excluded = sum(int(leaf.excluded.sum()) for leaf in leaves)
        if total and excluded > EXCLUDED * total:
            return Comparison(
                outcome="undecided",
                reason=f"the oracle is not definite at {excluded} of {total} elements",
                excluded=excluded,
                total=total,
            )
        return Comparison(outcome="within", rms=rms, excess=excess, total=total, excluded=excluded)

    # Classes of value.

    def _class_offence(self, leaves: list[_Leaf]) -> Offence | None:
        """Settles which elements are counted, and the first leaf with an element of a wrong class."""
        found: Offence | None = None
        for i, leaf in enumerate(leaves):
            if not compare.is_inexact(leaf.native.data):
                continue
            oracle = classes(compare.stored(leaf.exact, leaf.native.data))
            own = classes(compare.widened(leaf.native.data))
            got = classes(leaf.got)
            leaf.excluded = oracle != own
            wrong = (got != oracle) & ~leaf.excluded
            if wrong.any():
                lenient = wrong & (oracle != FINITE) & self._unmoved(i)
                leaf.excluded |= lenient
                wrong &= ~lenient
            leaf.counted = (oracle == FINITE) & ~leaf.excluded & (got == FINITE)
            if wrong.any() and found is None:
                found = Offence(i, wrong)
        return found

    def _unmoved(self, i: int) -> Array:
        """Elements that no finite change of the non-finite inputs moves: 0 · Inf or 0 · NaN."""
        if self._standing is None:
            assert self._runs is not None
            answers = [self._runs.exact(_stand_in(self.arguments, v)) for v in STAND_INS]
            self._standing = []
            for versions in zip(*answers, strict=True):
                first = versions[0]
                same = np.isfinite(first)
                for other in versions[1:]:
                    same &= first == other
                self._standing.append(same)
        return self._standing[i]

    def _class_comparison(self, leaves: list[_Leaf], offence: Offence) -> Comparison:
        leaf = leaves[offence.leaf]
        flat = offence.worst
        oracle = classes(compare.stored(leaf.exact, leaf.native.data)).ravel()[flat]
        got = classes(leaf.got).ravel()[flat]
        expected = compare.shown(leaf.exact.ravel()[flat])
        return Comparison(
            outcome="class",
            where=leaf.native.path,
            index=compare.index_of(flat, leaf.got.shape),
            expected=compare.class_name(int(oracle)) if oracle != FINITE else expected,
            got=compare.class_name(int(got)) if got != FINITE else compare.shown(
                leaf.got.ravel()[flat]
            ),
            bound="the same class of value (NaN, +Inf, -Inf or finite)",
            affected=int(offence.where.sum()),
            total=sum(x.got.size for x in leaves),
            excluded=sum(int(x.excluded.sum()) for x in leaves),
            exact=True,
        )

    # Values.

    def _errors(self, leaf: _Leaf) -> tuple[Array, Array]:
        """Errors of the candidate and of the native reference."""
        native = compare.widened(leaf.native.data)
        return (
            compare.error(leaf.got, leaf.exact, leaf.counted),
            compare.error(native, leaf.exact, leaf.counted),
        )

    def _no_worse_than_native(self, leaves: list[_Leaf]) -> bool:
        for leaf in leaves:
            if not compare.is_inexact(leaf.native.data):
                if ((leaf.got != leaf.exact) & leaf.counted).any():
                    return False
                continue
            mine, native = self._errors(leaf)
            if (mine > native).any():
                return False
        return True

    def _rms_to_native(self, leaves: list[_Leaf]) -> float:
        mine = sum(float((self._errors(leaf)[0] ** 2).sum()) for leaf in _floats(leaves))
        own = sum(float((self._errors(leaf)[1] ** 2).sum()) for leaf in _floats(leaves))
        return (mine / own) ** 0.5 if own else 0.0

    def _near(self, leaves: list[_Leaf], spread: Spread) -> bool:
        for i, leaf in enumerate(leaves):
            if not compare.is_inexact(leaf.native.data):
                if ((leaf.got != leaf.exact) & leaf.counted).any():
                    return False
                continue
            mine, _ = self._errors(leaf)
            s = spread.rms(i)
            if (mine > NEAR * s + floor_of(leaf.native.dtype)).any():
                return False
            if self._ratio(leaf, mine, s) > 1.0:
                return False
        return True

    def _ratio(self, leaf: _Leaf, error: Array, s: Array) -> float:
        """RMS error over RMS envelope (floor included), over the counted elements."""
        n = int(leaf.counted.sum())
        if not n:
            return 0.0
        floor = floor_of(leaf.native.dtype)
        excess = np.maximum(error - floor, 0.0)
        top = float(excess.max())
        if top == 0.0:
            return 0.0
        # Scaled by the largest error so that squares neither overflow nor vanish.
        mine = float(np.mean((excess[leaf.counted] / top) ** 2)) ** 0.5
        with np.errstate(over="ignore"):
            envelope = float(np.mean((s[leaf.counted] / top) ** 2)) ** 0.5
        return mine / envelope if envelope else float("inf")

    def _rms(self, leaves: list[_Leaf], spread: Spread) -> float:
        found = [
            self._ratio(leaf, self._errors(leaf)[0], spread.rms(i))
            for i, leaf in enumerate(leaves)
            if compare.is_inexact(leaf.native.data)
        ]
        return max(found, default=0.0)

    def _beyond(
        self, leaves: list[_Leaf], regime: str, spread: Spread, flips: int, widen: bool
    ) -> Comparison:
        """The comparison at a given number of samples: "within", "value" or "undecided"."""
        worst_rms, worst_excess = 0.0, 0.0
        for i, leaf in enumerate(leaves):
            if not self._disagree(leaf):
                continue
            leaf = self._without_flips(i, leaf, spread, regime, flips)
            leaves[i] = leaf
            if not compare.is_inexact(leaf.native.data):
                wrong = (leaf.got != leaf.exact) & leaf.counted
                if wrong.any():
                    return self._integer_comparison(leaves, Offence(i, wrong))
                continue
            found = self._float_leaf(leaves, i, spread, regime, widen)
            if found.broken:
                return found
            worst_rms = max(worst_rms, found.rms)
            worst_excess = max(worst_excess, found.excess)
        return self._within(leaves, rms=worst_rms, excess=worst_excess)

    def _without_flips(
        self, i: int, leaf: _Leaf, spread: Spread, regime: str, flips: int
    ) -> _Leaf:
        """Leaves out what hangs on a comparison closer than the envelope."""
        doubtful = spread.moved[i] | self._flipped(regime, flips, spread)[i]
        if not compare.is_inexact(leaf.native.data):
            native = leaf.native.data
            doubtful = doubtful | (native != leaf.exact)
        doubtful = doubtful & leaf.counted
        return replace(
            leaf, counted=leaf.counted & ~doubtful, excluded=leaf.excluded | doubtful
        )

    def _flipped(self, regime: str, count: int, spread: Spread) -> list[Array]:
        """Elements that a somewhat larger error moves out of proportion."""
        key = (regime, count)
        if key in self._flips:
            return self._flips[key]
        assert self._runs is not None
        exact = self._exact_values()
        found = [np.zeros(e.shape, dtype=bool) for e in exact]
        for k in range(count):
            values = self._runs.perturbed(
                BY_NAME[regime], k, amplify=AMPLIFICATION
            )
            for i, (value, want) in enumerate(zip(values, exact, strict=True)):
                if value.shape != want.shape:
                    found[i][...] = True
                elif not compare.is_inexact(want):
                    found[i] |= value != want
                else:
                    with np.errstate(invalid="ignore", over="ignore"):
                        deviation = np.abs(value - want)
                    # In proportion, the largest of a few hundred million deviations is 7 s;
                    # the square again is room for curvature.
                    limit = 49.0 * AMPLIFICATION * spread.rms(i)
                    found[i] |= (deviation > limit) & (deviation > 0)
        self._flips[key] = found
        return found

    def _float_leaf(
        self, leaves: list[_Leaf], i: int, spread: Spread, regime: str, widen: bool
    ) -> Comparison:
        leaf = leaves[i]
        mine, native = self._errors(leaf)
        s = spread.rms(i)
        floor = floor_of(leaf.native.dtype)
        multiple = statistics.element_multiple(spread.count, int(leaf.counted.sum()))
        components = statistics.effective_components(spread.totals[i])
        rms_multiple = statistics.rms_multiple(spread.count, components)
        assert self._runs is not None
        width = UNKNOWN_WIDTH if self._runs.unknown else 1.0
        bound = multiple * s * width + floor
        rms_bound = rms_multiple * width
        if widen:
            own = max(1.0, float(compare.ratio(native, bound).max(initial=0.0)))
            bound = np.maximum(bound * own, native)
            rms_bound = max(rms_bound, self._ratio(leaf, native, s))
        excess = compare.ratio(mine, bound)
        rms = self._ratio(leaf, mine, s)
        beyond = (excess > 1.0) & leaf.counted
        if not beyond.any() and rms <= rms_bound:
            return Comparison(outcome="within", rms=rms, excess=float(excess.max(initial=0.0)))
        if not self.generic:
            limit = np.maximum(self._worst(regime, i) * width + floor, bound)
            excess = compare.ratio(mine, limit)
            beyond = (excess > 1.0) & leaf.counted
            if not beyond.any():
                return Comparison(outcome="within", rms=rms, excess=float(excess.max(initial=0.0)))
            bound = limit
        return self._value_comparison(leaves, i, bound, mine, rms, rms_bound, regime)

    def _value_comparison(
        self,
        leaves: list[_Leaf],
        i: int,
        bound: Array,
        mine: Array,
        rms: float,
        rms_bound: float,
        regime: str,
    ) -> Comparison:
        leaf = leaves[i]
        excess = compare.ratio(mine, bound)
        beyond = (excess > 1.0) & leaf.counted
        single = bool(beyond.any())
        flat = Offence(i, beyond if single else leaf.counted, excess).worst
        limit = f"{compare.shown(bound.ravel()[flat])} ({regime})"
        if not single:
            limit = f"RMS error of {rms_bound:.3g} envelopes, found {rms:.3g} ({regime})"
        at_worst = self._worst(regime, i).ravel()[flat] + floor_of(leaf.native.dtype)
        return Comparison(
            outcome="value",
            where=leaf.native.path,
            index=compare.index_of(flat, leaf.got.shape),
            expected=compare.shown(leaf.exact.ravel()[flat]),
            got=compare.shown(leaf.got.ravel()[flat]),
            bound=limit,
            excess=float(excess.ravel()[flat]) if single else rms / rms_bound,
            rms=rms,
            affected=int(beyond.sum()) if single else int(leaf.counted.sum()),
            total=sum(x.got.size for x in leaves),
            excluded=sum(int(x.excluded.sum()) for x in leaves),
            beyond_worst_case=bool(mine.ravel()[flat] > at_worst),
        )

    def _integer_comparison(self, leaves: list[_Leaf], offence: Offence) -> Comparison:
        leaf = leaves[offence.leaf]
        flat = offence.worst
        return Comparison(
            outcome="value",
            where=leaf.native.path,
            index=compare.index_of(flat, leaf.got.shape),
            expected=compare.shown(leaf.exact.ravel()[flat]),
            got=compare.shown(leaf.got.ravel()[flat]),
            bound="equality",
            affected=int(offence.where.sum()),
            total=sum(x.got.size for x in leaves),
            excluded=sum(int(x.excluded.sum()) for x in leaves),
            exact=True,
        )

    # Samples.

    def _spread(self, regime: str, count: int, *, fresh: bool = False) -> Spread:
        """At least `count` samples; `fresh` ones share none with those of the first look."""
        exact = self._exact_values()
        assert self._runs is not None
        self._runs.settle(exact)
        key = (regime, "fresh" if fresh else "first")
        spread = self._spreads.setdefault(key, Spread(exact))
        offset = 1_000_000 if fresh else 0
        while spread.count < count:
            start = time.perf_counter()
            spread.add(self._runs.perturbed(BY_NAME[regime], offset + spread.count))
            self._seconds = max(self._seconds, time.perf_counter() - start)
        return spread

    def _worst(self, regime: str, leaf: int) -> Array:
        """An estimate of the largest error under any order of summation.

        With n · u in place of √n · u and errors of ±1, one sign an op, the response is a sum of one
        term a_k for each of the K roundings: Σ|a_k| ≤ √K · √Σa_k² (Cauchy and Schwarz), and the root
        of the mean of squares over random signs is √Σa_k². Signs an element instead catch what
        cancels when a whole op errs alike.
        """
        key = (regime, "worst")
        if key not in self._spreads:
            exact = self._exact_values()
            assert self._runs is not None
            halves = {kind: Spread(exact) for kind in ("coherent", "signs")}
            for k in range(WORST):
                kind = "coherent" if k % 2 else "signs"
                halves[kind].add(self._runs.perturbed(BY_NAME[regime], k, kind=kind))
            joint = Spread(exact, count=1)
            joint.squares = [
                np.maximum(a / max(1, halves["coherent"].count), b / max(1, halves["signs"].count))
                * self._runs.contributions
                for a, b in zip(
                    halves["coherent"].squares, halves["signs"].squares, strict=True
                )
            ]
            self._spreads[key] = joint
        return self._spreads[key].rms(leaf)


def _floats(leaves: list[_Leaf]) -> list[_Leaf]:
    return [leaf for leaf in leaves if compare.is_inexact(leaf.native.data)]


def _fresh(path: str, value: Any) -> Any:
    return value.detach().clone() if isinstance(value, torch.Tensor) else value


def _stand_in(arguments: Arguments, value: float) -> Arguments:
    """The arguments with every non-finite element replaced."""

    def swap(path: str, leaf: Any) -> Any:
        if not isinstance(leaf, torch.Tensor) or not leaf.is_floating_point():
            return leaf
        finite = torch.isfinite(leaf)
        if bool(finite.all()):
            return leaf
        return torch.where(finite, leaf.double(), torch.tensor(value, dtype=torch.float64))

    return replace(
        arguments,
        args=arrays.map_leaves(arguments.args, swap),
        kwargs=arrays.map_leaves(dict(arguments.kwargs), swap),
    )
