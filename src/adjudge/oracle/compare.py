"""One observation against the oracle: metadata, classes of value, values."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from adjudge.gates.protocol import Comparison
from adjudge.observation import Observation, OutputTensor
from adjudge.oracle.orders import admitted
from adjudge.oracle.regimes import Regime
from adjudge.oracle.rules import BLUR
from adjudge.oracle.statistics import RMS_MULTIPLE, element_multiple, mean_square_multiple

if TYPE_CHECKING:
    from adjudge.oracle.evaluate import Leaf, Oracle

Array = npt.NDArray[Any]

#: Below these, neither sign nor zero-or-not is compared: the smallest normal float32 (bfloat16 has
#: the same exponent), the smallest subnormal float16.
_FLOORS = {"float16": 2.0**-24, "float64": 2.0**-1022}
_FLOOR = 2.0**-126
#: Runs that may acquit at once, or convict of a gross error: acquitting asks for one envelope, not for
#: many, and a small sample is too tight only by luck.
FIRST = 4
#: Runs that decide what lies between; fresh runs that confirm a conviction.
SAMPLES, CONFIRM = 32, 128
#: Runs after which those that decide are asked whether they can still convict, see `_implied`.
RUNGS = (1, 2, 4, 8, 16)
#: Elements past which FEWER runs decide, since the mean square over so many elements is sharp already;
#: they also decide where a run is long. Student's quantile widens the bound for what they are few.
LARGE, FEWER = 1 << 21, 8
#: Honest errors under the worst law are sums of bounded terms, and so many amplitudes of one term of
#: their spread hold all of them: of nine terms alike, exactly.
_AMPLITUDES = 3.0
#: Share of elements that may be left out before nothing can be said.
MOST_EXCLUDED = 0.1
_FLOATS = ("float64", "float32", "float16", "bfloat16", "float8_e4m3fn", "float8_e5m2")


def metadata(observation: Observation, native: list[Leaf], structure: str) -> Comparison | None:
    """What is wrong with number, structure, dtype or shape; None if nothing."""
    if observation.structure.replace("[", "(").replace("]", ")") != structure.replace(
        "[", "("
    ).replace("]", ")"):
        return Comparison(
            outcome="metadata",
            reason="the outputs are structured differently",
            expected=structure,
            got=observation.structure,
            exact=True,
        )
    for ours, theirs in zip(native, observation.outputs, strict=True):
        expected = f"{ours.dtype}{list(ours.data.shape)}"
        got = f"{theirs.dtype}{list(theirs.data.shape)}"
        if expected != got:
            return Comparison(
                outcome="metadata",
                reason=f"{theirs.name} is {got}, where the reference gives {expected}",
                where=theirs.name,
                expected=expected,
                got=got,
                exact=True,
            )
    return None


def equal_bits(observation: Observation, native: list[Leaf]) -> bool:
    return all(
        np.array_equal(_bytes(a.data), _bytes(b.data))
        for a, b in zip(native, observation.outputs, strict=True)
    )


def _bytes(values: Array) -> Array:
    return np.ascontiguousarray(values).reshape(-1).view(np.uint8)


def exactly(observation: Observation, exact: list[Leaf], owed: list[Array]) -> Comparison:
    """The outputs against an answer that every honest kernel gives, where it is owed; zeros of either
    sign are one."""
    for leaf, output, here in zip(exact, observation.outputs, owed, strict=True):
        truth, got = _wide(leaf.data), _wide(output.data)
        wrong = (truth != got) & here
        if wrong.any():
            first = _first(wrong)
            return Comparison(
                outcome="value",
                where=f"output{output.path}",
                index=first,
                expected=_shown(truth[first]),
                got=_shown(got[first]),
                bound="equality: float32 holds these sums in any order",
                affected=int(wrong.sum()),
                total=wrong.size,
                exact=True,
            )
    return Comparison(outcome="equal", exact=True)


def beyond_roundings(
    oracle: Oracle, observation: Observation, regime: Regime, samples: int
) -> Comparison:
    """The finite outputs against the worst that the roundings of a regime come to together, on inputs
    that take them for anything but independent; twice the native reference's own error is honest too."""
    worst = 0.0
    for index, output in enumerate(observation.outputs):
        if output.dtype not in _FLOATS or not output.data.size:
            continue
        exact, got = _wide(oracle.exact[index].data), _wide(output.data)
        native = _wide(oracle.native[index].data)
        finite = np.isfinite(exact) & np.isfinite(got) & np.isfinite(native)
        with np.errstate(invalid="ignore"):
            error = np.where(finite, np.abs(got - exact), 0.0)
            own = np.where(finite, np.abs(native - exact), 0.0)
        amplitude = np.sqrt(3.0) * oracle.envelope(regime, samples)[index]
        bound = np.fmax(_AMPLITUDES * amplitude + _FLOORS.get(output.dtype, _FLOOR), 2 * own)
        excess = np.where(finite, error / bound, 0.0)
        wrong = excess > 1
        if wrong.any():
            at = np.unravel_index(int(np.argmax(excess)), excess.shape)
            first = tuple(int(i) for i in at)
            return Comparison(
                outcome="value",
                where=output.name,
                index=first,
                expected=_shown(exact[first]),
                got=_shown(got[first]),
                bound=f"{float(bound[first]):.3g}: what all roundings come to together",
                excess=float(excess.max()),
                affected=int(wrong.sum()),
                total=error.size,
                beyond_worst_case=True,
            )
        worst = max(worst, float(excess.max()))
    return Comparison(outcome="within", excess=worst)


def between(exact: list[Leaf], cut: list[Leaf], observation: Observation) -> list[Array]:
    """For each output the point between two answers that is nearest to the one given: a candidate may
    cut the operands of one product, and round those of another."""
    found = []
    for one, other, output in zip(exact, cut, observation.outputs, strict=True):
        start, end, got = _wide(one.data), _wide(other.data), _wide(output.data)
        if output.dtype not in _FLOATS:
            found.append(other.data)
            continue
        with np.errstate(invalid="ignore", over="ignore"):
            way = end - start
            seen = np.isfinite(way) & np.isfinite(got)
            way, off = np.where(seen, way, 0.0), np.where(seen, got - start, 0.0)
        length = float(np.sum(way * way))
        share = min(max(float(np.sum(way * off)) / length, 0.0), 1.0) if length else 0.0
        found.append(start + share * way)
    return found


#: Bounds that acquit, on elements and in the mean square, in envelopes, by the number of elements.
Acquittal = Callable[[int], tuple[float, float]]


def _one(elements: int) -> tuple[float, float]:
    """An error that one envelope holds."""
    return 1.0, math.inf


def _implied(samples: int, deciding: int) -> Acquittal:
    """An error that `deciding` runs would acquit, whatever those after the first `samples` show: the
    root of the mean of n squares is at least sqrt(m / n) times that of the first m of them."""
    share = math.sqrt(samples / deciding)
    return lambda elements: (share * element_multiple(deciding, elements), share * RMS_MULTIPLE)


class Judgement:
    """The comparison in one regime, drawing as few envelopes as it needs.

    Args:
        widen: whether the native reference's own error widens the bound.
        confirm: whether a conviction is drawn again with CONFIRM fresh runs.
        lenient: whether only gross errors convict.
        about: answers that errors are counted from, in place of the float64 ones.
        tight: whether the ratio of the mean squares is read where nothing is wrong: it is then from as
            many runs as a conviction would rest on, unless one envelope holds every error.
    """

    def __init__(
        self,
        oracle: Oracle,
        observation: Observation,
        regime: Regime,
        *,
        widen: bool,
        confirm: bool = False,
        lenient: bool = False,
        tight: bool = False,
        about: list[Array] | None = None,
    ) -> None:
        self._oracle = oracle
        self._observation = observation
        self._regime = regime
        self._widen = widen
        self._confirm = confirm
        self._lenient = lenient
        self._tight = tight
        self._about = [leaf.data for leaf in oracle.exact] if about is None else about
        #: By output, and by whether elements that hang on a choice are compared.
        self._found: dict[tuple[int, bool], tuple[Array, Array, Array, Array, Array]] = {}
        self._excluded = 0
        self._total = 0

    def verdict(self) -> Comparison:
        outputs = self._observation.outputs
        worst_rms, worst = 0.0, 0.0
        for index, output in enumerate(outputs):
            self._total += output.data.size
            wrong = self._classes(index, output)
            if wrong is not None:
                return wrong
        if self._total and self._excluded > MOST_EXCLUDED * self._total:
            return Comparison(
                outcome="undecided",
                reason=f"{self._excluded} of {self._total} elements are not definite: the float64 "
                "oracle and the native reference differ in class there",
                excluded=self._excluded,
                total=self._total,
            )
        for index, output in enumerate(outputs):
            found = self._values(index, output)
            if not found.ok:
                return found
            worst_rms, worst = max(worst_rms, found.rms), max(worst, found.excess)
        return Comparison(
            outcome="within",
            rms=worst_rms,
            excess=worst,
            excluded=self._excluded,
            total=self._total,
        )

    def _classes(self, index: int, output: OutputTensor) -> Comparison | None:
        """Positions of NaN and infinities; only where oracle and native reference agree."""
        if output.dtype not in _FLOATS or not output.data.size:
            return None
        native = _wide(self._oracle.native[index].data)
        exact = _wide(self._oracle.exact[index].data)
        got = _wide(output.data)
        ours, truth, theirs = classes(native), classes(exact), classes(got)
        definite = (ours == truth) & self._oracle.settled[index] & self._oracle.forgiven[index]
        if not np.isfinite(native).all():
            definite = definite & ~(self._oracle.independent[index] & ~np.isfinite(native))
        self._excluded += int((~definite).sum())
        wrong, reason = definite & (theirs != truth), ""
        if wrong.any():
            # An infinity is no finite number in any order; a NaN may be one behind a maximum.
            free = admitted(self._oracle.orders, index, theirs) & ((theirs != 0) | (truth == 1))
            wrong = wrong & ~free
        if not wrong.any() and self._oracle.signs_zero:
            zero = (native == 0) & (exact == 0) & (got == 0)
            signed = np.signbit(native) == np.signbit(exact)
            wrong = zero & signed & (np.signbit(got) != np.signbit(native))
            reason = "a zero has the wrong sign"
        if not wrong.any():
            return None
        first = _first(wrong)
        return Comparison(
            outcome="class",
            reason=reason,
            where=output.name,
            index=first,
            expected=_shown(native[first]),
            got=_shown(got[first]),
            bound="the same class of value",
            affected=int(wrong.sum()),
            total=output.data.size,
            excluded=self._excluded,
            exact=True,
        )

    def _values(self, index: int, output: OutputTensor) -> Comparison:
        if not output.data.size:
            return Comparison(outcome="within")
        if output.dtype not in _FLOATS:
            return self._integers(index, output)
        large, long = output.data.size > LARGE, self._oracle.long
        deciding = FEWER if large or long else SAMPLES
        rungs = () if self._tight or self._oracle.chooses else RUNGS
        for samples in (r for r in rungs if r <= FIRST):
            found = self._against(index, output, samples, acquit=_implied(samples, deciding))
            if found.ok:
                return found
        found = self._against(index, output, FIRST, acquit=_one)
        if found.ok:
            return found
        if self._leaves_out(index):
            return Comparison(
                outcome="undecided",
                reason=f"{self._excluded} of {self._total} elements hang on choices that rounding "
                "decides",
                excluded=self._excluded,
                total=self._total,
            )
        # Student's quantile holds at any number of runs; few runs only make it wide. So a gross
        # error is convicted at once, and what lies between waits for more runs.
        found = self._against(index, output, FIRST)
        if found.ok and not self._lenient:
            for samples in (r for r in rungs if FIRST < r < deciding):
                found = self._against(index, output, samples, acquit=_implied(samples, deciding))
                if found.ok:
                    return found
            found = self._against(index, output, deciding)
        if not found.ok and self._confirm and not large:
            found = self._against(index, output, FEWER if long else CONFIRM, fresh=True)
        return found

    def _leaves_out(self, index: int) -> bool:
        """Counts the elements that hang on a choice; whether they are too many to decide anything."""
        unsettled = self._oracle.unsettled(self._regime)
        if unsettled is None:
            return False
        self._excluded += int(unsettled[index].sum())
        return self._excluded > MOST_EXCLUDED * self._total

    def _against(
        self,
        index: int,
        output: OutputTensor,
        samples: int,
        *,
        fresh: bool = False,
        acquit: Acquittal | None = None,
    ) -> Comparison:
        oracle = self._oracle
        # Finding what hangs on a choice costs many runs: what can be acquitted without is.
        unsettled = None if acquit is not None else oracle.unsettled(self._regime)
        exact, got, finite, error, own = self._errors(index, output, unsettled)
        envelope = np.where(finite, oracle.envelope(self._regime, samples, fresh=fresh)[index], 0)
        floor = _FLOORS.get(output.dtype, _FLOOR)
        # One rounding of the result to its own storage is always honest.
        envelope = envelope + floor + np.where(finite, np.abs(exact), 0) * self._regime.store / 2
        if acquit is not None:
            multiple, limit = acquit(error.size)
        else:
            multiple, limit = element_multiple(samples, error.size), math.inf
        bound = np.maximum(multiple * envelope, 2 * own)
        rms_envelope = float(np.sqrt(np.mean(envelope**2)))
        rms_own = float(np.sqrt(np.mean(own**2)))
        if rms_own > RMS_MULTIPLE * rms_envelope:
            # The reference misses its own envelope: a candidate may be as wrong, element by element.
            by_own = multiple if acquit is None else 1.0
            bound = np.maximum(bound, by_own * rms_own)
        rms = float(np.sqrt(np.mean(error**2)) / max(rms_envelope, rms_own, 1e-300))
        excess = error / bound
        wrong = excess > 1
        if acquit is None:
            limit = self._mean_square_limit(index, envelope, samples, fresh=fresh)
        if not wrong.any() and rms <= limit:
            return Comparison(
                outcome="within", rms=rms, excess=float(excess.max()), total=error.size
            )
        reason, shown_bound, beyond = "", "", float(excess.max())
        if not wrong.any():
            wrong = error == error.max()
            reason = f"the mean-square error is {rms:.1f} times what an honest kernel makes"
            shown_bound = f"{limit * max(rms_envelope, rms_own):.3g} in the mean square"
            beyond = rms / limit
        at = np.unravel_index(int(np.argmax(np.where(wrong, excess, 0))), excess.shape)
        first = tuple(int(i) for i in at)
        return Comparison(
            outcome="value",
            reason=reason,
            where=output.name,
            index=first,
            expected=_shown(exact[first]),
            got=_shown(got[first]),
            bound=shown_bound or f"{float(bound[first]):.3g}",
            excess=beyond,
            rms=rms,
            affected=int(wrong.sum()),
            total=error.size,
            excluded=self._excluded,
            beyond_worst_case=acquit is None and self._beyond_worst(index, error, wrong),
        )

    def _errors(
        self, index: int, output: OutputTensor, unsettled: list[Array] | None
    ) -> tuple[Array, Array, Array, Array, Array]:
        """The exact answer, the one given, where both are compared, the error there, and the native
        reference's own."""
        key = index, unsettled is None
        if key in self._found:
            return self._found[key]
        oracle = self._oracle
        exact, native, got = map(
            _wide, (oracle.exact[index].data, oracle.native[index].data, output.data)
        )
        finite = np.isfinite(exact) & np.isfinite(got) & np.isfinite(native)
        if unsettled is not None:
            finite &= ~unsettled[index]
        about = _wide(self._about[index])
        with np.errstate(invalid="ignore"):
            error = np.where(finite, np.abs(got - about), 0.0)
            own = np.where(finite, np.abs(native - exact), 0.0)
            if oracle.textbook is not None:
                plain = np.abs(_wide(oracle.textbook[index].data) - exact)
                own = np.fmax(own, np.where(finite & np.isfinite(plain), plain, 0.0))
        if not self._widen:
            own = np.zeros_like(error)
        self._found[key] = exact, got, finite, error, own
        return self._found[key]

    def _mean_square_limit(
        self, index: int, envelope: Array, samples: int, *, fresh: bool
    ) -> float:
        """For the mean-square error over the mean-square envelope. Few runs do not tell how many errors
        are independent of each other: then only what one alone cannot explain is convicted."""
        if self._lenient:
            return math.inf
        effective = 1.0
        if samples >= FEWER:
            squares = (envelope / max(float(envelope.max()), 1e-300)) ** 2
            shown = self._oracle.effective(self._regime, samples, fresh=fresh)[index]
            effective = min(shown, float(squares.sum() ** 2 / max((squares**2).sum(), 1e-300)))
        return mean_square_multiple(samples, min(effective, 1e9))

    def _beyond_worst(self, index: int, error: Array, wrong: Array) -> bool:
        """Whether an offending element exceeds the worst case."""
        worst = self._oracle.worst(self._regime)[index]
        return bool((error[wrong] > _AMPLITUDES * worst[wrong] + _FLOOR).any())

    def _integers(self, index: int, output: OutputTensor) -> Comparison:
        """Exact, except where an error within the envelope changes the reference's own choice."""
        native, exact = self._oracle.native[index].data, self._about[index]
        wrong = (output.data != native) & (output.data != exact)
        if not wrong.any():
            return Comparison(outcome="within", exact=True, total=output.data.size)
        blurred = replace(
            self._regime,
            name=f"{self._regime.name}, blurred",
            store=self._regime.store * BLUR,
            accumulate=self._regime.accumulate * BLUR,
            operand=self._regime.operand * BLUR,
        )
        moved = self._oracle.envelope(blurred, SAMPLES)[index] > 0
        unsettled = moved | (native != exact)
        wrong = wrong & ~unsettled
        self._excluded += int(unsettled.sum())
        if not wrong.any():
            return Comparison(outcome="within", total=output.data.size, excluded=self._excluded)
        first = _first(wrong)
        return Comparison(
            outcome="value",
            where=output.name,
            index=first,
            expected=str(native[first]),
            got=str(output.data[first]),
            bound="equality",
            affected=int(wrong.sum()),
            total=output.data.size,
            excluded=self._excluded,
            exact=True,
        )


def _wide(values: Array) -> Array:
    return values.astype(np.float64)


def classes(values: Array) -> Array:
    """0 finite, 1 NaN, 2 +inf, 3 -inf."""
    values = _wide(values)
    kinds = np.zeros(values.shape, dtype=np.int8)
    kinds[np.isnan(values)] = 1
    kinds[values == np.inf] = 2
    kinds[values == -np.inf] = 3
    return kinds


def _first(mask: Array) -> tuple[int, ...]:
    flat = int(np.flatnonzero(mask)[0])
    return tuple(int(i) for i in np.unravel_index(flat, mask.shape))


def _shown(value: Any) -> str:
    return f"{float(value):.9g}"
