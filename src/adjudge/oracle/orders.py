"""Which classes of value an honest reordering may give, where an infinity is a factor of a sum.

A scale may be multiplied into the terms of a sum or into the sum: the mathematics is the same. With an
infinite scale, the first gives NaN as soon as two terms differ in sign, or one is zero; the second gives
an infinity of the sum's sign. Neither swallows the infinity, and both are right.

Every intermediate value of the reference is looked at with large numbers in place of the infinities. If
it is linear in them, and goes one way however they grow against each other, then multiplications and
additions could have come in another order there: a NaN could have been that infinity; an infinity could
have been NaN, if its coefficient is a sum. The rest of the program is run on from there. What is not
linear (a maximum, an exponential, a softmax) leaves no such choice, and its classes stay definite.

The mean of a batch that is normalised may be kept by Welford's recurrence, as the GPU's own batch norm
keeps it: m + (x - m) / k is NaN from the first term behind an infinite one. Its running mean is then NaN
where that of a plain sum is infinite.

Nor is it definite whether huge values overflow on the way: a factor below one may come before a sum or
after it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from adjudge import arrays
from adjudge.oracle import rules
from adjudge.oracle.lifted import Lifted
from adjudge.program import Arguments, OutsideDomain

Array = npt.NDArray[Any]
Change = Callable[[torch.Tensor], torch.Tensor]
#: Runs the reference in a mode, with those arguments and its own state changed so; gives the data of its
#: outputs.
Run = Callable[[Lifted, Arguments, Change | None], list[Array]]
Seen = Callable[[int, torch.Tensor], torch.Tensor]

#: Operations that take a mean together with the deviations from it.
_MOMENTS = frozenset(
    "native_batch_norm _native_batch_norm_legit native_layer_norm native_group_norm var_mean".split()
)
#: What stands for an infinity, and how far one may be ahead of another: products of two and sums of many
#: stay far from float64's largest number, and what is finite is below float64's rounding of them.
_LARGE, _AHEAD = 2.0**120, 2.0**60
#: Draws of which infinities are ahead. The sign of a sum in which a quarter of them have another sign
#: than the rest stays the same through all of them once in a thousand times.
_DRAWS = 24
#: Values alike to this part are equal: float32 could not tell them apart.
_ALIKE = 2.0**-24


@dataclass(slots=True)
class _Step:
    """One intermediate value with large numbers in place of the infinities."""

    value: torch.Tensor
    #: Where it is linear in them, and its sign the same in every draw.
    linear: torch.Tensor
    #: Where, besides, its coefficient is a sum.
    sums: torch.Tensor


class _Watching(Lifted):  # type: ignore[no-untyped-call]
    """Shows every float that an operation gives to `seen`, by its number, and goes on with what that
    returns."""

    def __init__(self, native: torch.dtype, seen: Seen) -> None:
        super().__init__(native, rules.Silence())
        self._seen = seen
        self._number = 0
        self._depth = 0
        #: Numbers of the means among the moments of a batch.
        self.means: set[int] = set()

    def _run(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        name = func._schema.name.split("::")[1]
        self._depth += name in _MOMENTS
        out = super()._run(func, args, kwargs)
        self._depth -= name in _MOMENTS
        if not isinstance(out, torch.Tensor) or out.dtype != torch.float64 or _views(func):
            return out
        self._number += 1
        if name == "mean" and self._depth:
            self.means.add(self._number)
        return self._seen(self._number, out)


def _views(func: Any) -> bool:
    """Whether the result shares memory with an argument, as views and writes in place do: it holds
    nothing new, or was seen as it was made."""
    return any(result.alias_info is not None for result in func._schema.returns)


class Orders:
    """Runs one reference at the infinities of its arguments.

    Args:
        run: evaluates the reference.
        native: the dtype that it computes in.
        arguments: with float64 in place of every float.
    """

    def __init__(self, run: Run, native: torch.dtype, arguments: Arguments) -> None:
        self._evaluate = run
        self._native = native
        self._arguments = arguments
        self._steps: dict[int, _Step] = {}
        self._means: set[int] = set()

    def of_infinities(self) -> list[list[Array]]:
        """The outputs with every such NaN an infinity, and with every such infinity NaN; nothing where
        the reference has no other order."""
        try:
            self._look()
            if not any(bool(step.linear.any()) for step in self._steps.values()):
                return []
            return [self._evaluated(self._arguments, seen) for seen in (self._after, self._before)]
        except OutsideDomain:
            return []

    def of_huge(self) -> list[list[Array]]:
        """The outputs with an infinity, and with NaN, wherever the magnitudes that are not below one
        come to more than the dtype holds; nothing where they nowhere do."""
        largest, beyond = torch.finfo(self._native).max, dict[int, torch.Tensor]()

        def bounded(number: int, value: torch.Tensor) -> torch.Tensor:
            over = value.abs() > largest
            if bool(over.any()):
                beyond[number] = over
            return value

        def overflowing(got: float) -> Seen:
            def seen(number: int, value: torch.Tensor) -> torch.Tensor:
                over = beyond.get(number)
                if over is None or over.shape != value.shape:
                    return value
                return torch.where(over, value.sign() * got, value)

            return seen

        try:
            self._evaluated(self._changed(self._arguments, _factors), bounded, change=_factors)
            outcomes = (torch.inf, torch.nan) if beyond else ()
            return [self._evaluated(self._arguments, overflowing(got)) for got in outcomes]
        except OutsideDomain:
            return []

    def _evaluated(
        self, arguments: Arguments, seen: Seen, *, change: Change | None = None
    ) -> list[Array]:
        mode = _Watching(self._native, seen)
        outputs = self._evaluate(mode, arguments, change)
        self._means = mode.means
        return outputs

    @staticmethod
    def _changed(arguments: Arguments, change: Change) -> Arguments:
        return arguments.mapped(lambda _, x: change(x) if isinstance(x, torch.Tensor) else x)

    def _look(self) -> None:
        count = sum(int(t.isinf().sum()) for _, t in self._floats())
        if not count:
            return

        def first(number: int, value: torch.Tensor) -> torch.Tensor:
            nothing = torch.zeros(value.shape, dtype=torch.bool)
            self._steps[number] = _Step(value.clone(), value.isfinite() & (value != 0), nothing)
            return value

        def narrowed(holds: Callable[[torch.Tensor, torch.Tensor], torch.Tensor]) -> Any:
            def seen(number: int, value: torch.Tensor) -> torch.Tensor:
                step = self._steps.get(number)
                if step is not None:
                    same = step.value.shape == value.shape
                    step.linear &= holds(value, step.value) if same else False
                return value

            return seen

        def spread(number: int, value: torch.Tensor) -> torch.Tensor:
            step = self._steps.get(number)
            if step is not None and step.value.shape == value.shape:
                step.sums = step.linear & ~_alike(value.abs(), step.value.abs())
            return value

        self._evaluated(self._large(1.0), first)
        self._evaluated(self._large(-1.0), narrowed(lambda new, old: _alike(new, -old)))
        self._evaluated(self._large(2.0), narrowed(lambda new, old: _alike(new, 2 * old)))
        for draw in range(_DRAWS if count > 1 else 0):
            same_sign = narrowed(lambda new, old: torch.sign(new) == torch.sign(old))
            self._evaluated(self._large(1.0, draw), same_sign)
        large = self._changed(self._large(1.0), _magnitudes)
        self._evaluated(large, spread, change=_magnitudes)

    def _floats(self) -> list[tuple[str, torch.Tensor]]:
        return [(path, t) for path, t in self._arguments.tensors() if t.is_floating_point()]

    def _large(self, factor: float, draw: int | None = None) -> Arguments:
        """The arguments with large numbers in place of infinities, some of them ahead of the others."""
        generator = torch.Generator().manual_seed(draw or 0)

        def replaced(path: str, value: Any) -> Any:
            if not isinstance(value, torch.Tensor) or not value.is_floating_point():
                return value
            size = torch.full(value.shape, _LARGE * factor, dtype=torch.float64)
            if draw is not None:
                ahead = torch.rand(value.shape, generator=generator) < 0.5
                size = torch.where(ahead, size * _AHEAD, size)
            return torch.where(value.isinf(), value.sign() * size, value)

        return self._arguments.mapped(replaced)

    def _after(self, number: int, value: torch.Tensor) -> torch.Tensor:
        """Infinite, where the infinity may be multiplied in after the sum."""
        step = self._steps.get(number)
        if step is None or step.value.shape != value.shape:
            return value
        return torch.where(step.linear & value.isnan(), step.value.sign() * torch.inf, value)

    def _before(self, number: int, value: torch.Tensor) -> torch.Tensor:
        """NaN, where the infinity may be multiplied into the terms, or kept by Welford's recurrence."""
        step = self._steps.get(number)
        if step is None or step.value.shape != value.shape:
            return value
        free = step.linear if number in self._means else step.sums
        return torch.where(free & value.isinf(), torch.nan, value)


def _alike(new: torch.Tensor, old: torch.Tensor) -> torch.Tensor:
    return (new - old).abs() <= _ALIKE * old.abs()


def _magnitudes(tensor: torch.Tensor) -> torch.Tensor:
    """Absolute values, ones in place of zeros: a product keeps its size, and a sum of several terms does
    not. Integers wider than eight bits are indices, and kept."""
    values = _absolute(tensor)
    return tensor if values is None else torch.where(values == 0, 1, values).to(tensor.dtype)


def _factors(tensor: torch.Tensor) -> torch.Tensor:
    """Absolute values, ones in place of what is smaller: no order of products forms anything larger."""
    values = _absolute(tensor)
    return tensor if values is None else values.clamp(min=1).to(tensor.dtype)


def _absolute(tensor: torch.Tensor) -> torch.Tensor | None:
    if tensor.is_floating_point():
        return arrays.computable(tensor).abs()
    if tensor.dtype in (torch.int8, torch.uint8):
        return tensor.to(torch.int16).abs().clamp(max=127)
    return None


def admitted(alternatives: list[list[npt.NDArray[np.int8]]], index: int, got: Array) -> Array:
    """Where the classes `got` are those of another order; of infinities, either sign: that is the sign
    of the sum, which values at finite scales show."""
    found = np.zeros(got.shape, dtype=bool)
    for classes in alternatives:
        if classes[index].shape == got.shape:
            found |= (got == classes[index]) | ((got >= 2) & (classes[index] >= 2))
    return found
