"""Runs of a reference in float64, and the spread of those that carry rounding errors."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from adjudge import arrays
from adjudge.oracle.decompositions import decomposition
from adjudge.oracle.leaves import flatten
from adjudge.oracle.mode import Lift, lift, lift_module, lifted
from adjudge.oracle.noise import Noise
from adjudge.oracle.regimes import Regime
from adjudge.oracle.rules import Rules, Scale
from adjudge.program import Arguments

#: How far errors are amplified to find values that hang on a comparison. Honest errors stay below
#: this multiple of the envelope (the quantile for 128 samples and a million elements is 17).
AMPLIFICATION = 16.0

Array = npt.NDArray[Any]


class Runs:
    """Executes one reference on one set of arguments, lifted, any number of times."""

    def __init__(
        self,
        make: Callable[[], Callable[..., Any]],
        arguments: Arguments,
        base: torch.dtype,
        seed: int,
    ) -> None:
        self.arguments = arguments
        self.base = base
        self.seed = seed
        self.unknown: set[str] = set()
        self.contributions = 1
        self._make = make
        self._reference: Any = None
        self._stateful = False
        self._settled = False
        self._scales: dict[tuple[int, str], Scale] = {}
        self._lifted = (
            arrays.map_leaves(arguments.args, _lift_leaf),
            arrays.map_leaves(dict(arguments.kwargs), _lift_leaf),
        )

    def exact(self, arguments: Arguments | None = None) -> list[Array]:
        """float64 values of every leaf; integers and booleans as they are."""
        return self._run(Lift(self.base), arguments)

    def settle(self, first: list[Array]) -> None:
        """Finds out, once, whether a second call on the same reference answers differently from
        the `first`; if so, every run constructs its own."""
        if not self._settled:
            self._settled = True
            self._stateful = not all(map(_alike, self.exact(), first))

    def perturbed(
        self, regime: Regime, sample: int, *, kind: str = "uniform", amplify: float = 1.0
    ) -> list[Array]:
        """One run with errors; `kind` is a kind of `Noise`, and sums add up linearly unless it is
        "uniform"."""
        seed = random.Random(f"{self.seed}/{regime.name}/{kind}/{amplify}/{sample}").getrandbits(64)
        rules = Rules(
            regime,
            Noise(seed, kind),
            self._scales,
            worst=kind != "uniform",
            amplify=amplify,
            unknown=self.unknown,
        )
        mode = Lift(self.base, primitive=rules, decompose=decomposition)
        values = self._run(mode, None)
        self.contributions = max(1, rules.contributions)
        return values

    def _run(self, mode: Lift, arguments: Arguments | None) -> list[Array]:
        if arguments is None:
            args, kwargs = self._lifted
        else:
            args = arrays.map_leaves(arguments.args, _lift_leaf)
            kwargs = arrays.map_leaves(dict(arguments.kwargs), _lift_leaf)
        reference = self._fresh()
        args = arrays.map_leaves(args, _copied)
        kwargs = arrays.map_leaves(kwargs, _copied)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(self.seed)
            with lifted(mode):
                result = reference(*args, **kwargs)
        return [arrays.to_numpy(t) for _, t, _ in flatten(result)]

    def _fresh(self) -> Any:
        """A reference in its first state: constructed anew where a run changes it."""
        if self._reference is not None and not self._stateful:
            return self._reference
        self._reference = lift_module(self._make())
        return self._reference


def _alike(a: Array, b: Array) -> bool:
    return a.shape == b.shape and a.tobytes() == b.tobytes()


def _lift_leaf(path: str, value: Any) -> Any:
    return lift(value) if isinstance(value, torch.Tensor) else value


def _copied(path: str, value: Any) -> Any:
    if not isinstance(value, torch.Tensor):
        return value
    copy = value.detach().clone()
    kind = getattr(value, "_adjudge_logical", None)
    if kind is not None:
        copy._adjudge_logical = kind  # type: ignore[attr-defined]
    return copy


@dataclass(slots=True)
class Spread:
    """Sums of squared deviations from the float64 answer, leaf by leaf."""

    exact: list[Array]
    count: int = 0
    squares: list[Array] = field(default_factory=list)
    #: Mean square over all float leaves, relative to the sum, of each sample.
    totals: list[list[float]] = field(default_factory=list)
    #: Elements of integer leaves that some sample changed, and float ones it made non-finite.
    moved: list[Array] = field(default_factory=list)

    def add(self, values: list[Array]) -> None:
        if not self.squares:
            self.squares = [np.zeros(e.shape, dtype=np.float64) for e in self.exact]
            self.moved = [np.zeros(e.shape, dtype=bool) for e in self.exact]
            self.totals = [[] for _ in self.exact]
        for i, (value, exact) in enumerate(zip(values, self.exact, strict=True)):
            if value.shape != exact.shape:
                self.moved[i][...] = True
                continue
            if not np.issubdtype(exact.dtype, np.inexact):
                self.moved[i] |= value != exact
                continue
            with np.errstate(invalid="ignore", over="ignore"):
                deviation = np.abs(value - exact)
            bad = ~np.isfinite(deviation)
            if bad.any():
                self.moved[i] |= bad & np.isfinite(exact)
                deviation[bad] = 0.0
            np.multiply(deviation, deviation, out=deviation)
            self.squares[i] += deviation
            self.totals[i].append(float(deviation.mean()) if deviation.size else 0.0)
        self.count += 1

    def rms(self, leaf: int) -> Array:
        """s of one leaf."""
        result: Array = np.sqrt(self.squares[leaf] / max(1, self.count))
        return result
