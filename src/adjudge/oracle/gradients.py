"""The truth about gradients: float64 autograd of the reference, and the error of an honest backward.

The backward pass is differentiated by torch above the dispatch mode of `lifted`, so that forward and
backward are decomposed and err alike: a gradient's envelope holds the errors of what was saved, too.

Where a function has a kink (relu at 0, tied maxima, the absolute value at 0), torch's convention is
one of many, and rounding may decide on which side a value falls. Such elements are found by making
errors BLUR times as large: a smooth function answers BLUR times as much, a kink does not.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any

import numpy as np
import torch

from adjudge import arrays
from adjudge.gates.protocol import Comparison
from adjudge.observation import GRADIENT, Observation, OutputTensor
from adjudge.oracle import rules
from adjudge.oracle.compare import SAMPLES
from adjudge.oracle.evaluate import Array, Leaf, Make, Oracle
from adjudge.oracle.lifted import Lifted
from adjudge.oracle.regimes import Regime
from adjudge.oracle.rules import BLUR
from adjudge.program import Arguments, OutsideDomain

#: The cotangent of one output, given its place among the tensors returned, shape and dtype.
Cotangent = Callable[[int, torch.Tensor], torch.Tensor]
#: A linear answer to BLUR times the error is BLUR times as large, up to terms of second order in a
#: rounding error; an answer off by this factor or more, either way, is none.
NONLINEAR = 2.0


def pull(
    reference: Callable[..., Any], arguments: Arguments, cotangent: Cotangent
) -> dict[str, torch.Tensor]:
    """The gradients of the reference by name, inputs first ("args[0]"), then parameters ("weight");
    those that are None are left out. Nothing if no output is differentiable.

    Raises:
        OutsideDomain: the reference, or its backward pass, raises.
    """
    sources: dict[str, torch.Tensor] = {}

    def leaf(path: str, value: Any) -> Any:
        if not isinstance(value, torch.Tensor) or not value.is_floating_point():
            return value
        if arrays.is_stored_float(value):
            return value
        sources[path] = value.detach().clone().requires_grad_()
        return sources[path]

    try:
        with torch.enable_grad():
            marked = arguments.mapped(leaf)
            if isinstance(reference, torch.nn.Module):
                named = reference.named_parameters(remove_duplicate=False)
                sources |= {name: p for name, p in named if p.requires_grad}
            result = reference(*marked.args, **dict(marked.kwargs))
            outputs = [
                (t, cotangent(i, t))
                for i, (_, t) in enumerate(arrays.tensors_in(result))
                if t.requires_grad and t.is_floating_point()
            ]
            if not outputs or not sources:
                return {}
            found = torch.autograd.grad(
                [t for t, _ in outputs],
                list(sources.values()),
                grad_outputs=[c for _, c in outputs],
                allow_unused=True,
            )
    except Exception as error:
        raise OutsideDomain(f"{type(error).__name__}: {error}") from error
    return {name: g.detach() for name, g in zip(sources, found, strict=True) if g is not None}


class GradientOracle(Oracle):
    """Evaluates the gradients of one reference for given cotangents.

    Args:
        cotangents: one tensor of the native dtype for each tensor that the reference returns, None
            for those without gradient.
        names: of the inputs and parameters whose gradients are judged.
    """

    def __init__(
        self,
        make: Make,
        arguments: Arguments,
        *,
        generic: bool,
        cotangents: Sequence[torch.Tensor | None],
        names: Sequence[str],
        seed: int = 0,
    ) -> None:
        super().__init__(make, arguments, generic=generic, seed=seed)
        self._cotangents = cotangents
        self._names = names
        self._kinks: dict[str, list[Array]] = {}

    def _evaluated(
        self, reference: Callable[..., Any], arguments: Arguments
    ) -> tuple[str, list[Leaf]]:
        def cotangent(index: int, output: torch.Tensor) -> torch.Tensor:
            given = self._cotangents[index] if index < len(self._cotangents) else None
            if given is None:
                return torch.zeros_like(output)
            return given.to(output.dtype)

        found = pull(reference, arguments, cotangent)
        absent = [name for name in self._names if name not in found]
        if absent:
            raise OutsideDomain(f"the reference has no gradient for {absent[0]} here")
        leaves = [
            Leaf(f"{GRADIENT}{name}", arrays.to_numpy(found[name]).copy(), _dtype(found[name]))
            for name in self._names
        ]
        return f"({', '.join(['tensor'] * len(leaves))})", leaves

    @cached_property
    def signs_zero(self) -> bool:
        """Never: a gradient is a sum over everything that depends on its input."""
        return False

    def compare(
        self, observation: Observation, name: str, *, confirm: bool = False, lenient: bool = False
    ) -> Comparison:
        """As of outputs. A gradient that is missing is not judged here, and one of another shape or
        dtype is a wrong value."""
        whole = self._completed(observation)
        found = super().compare(whole, name, confirm=confirm, lenient=lenient)
        if found.outcome == "metadata":
            return replace(found, outcome="value", affected=1, total=1)
        if found.outcome == "value" and not found.exact and self.unruled:
            # The bound is then a guess, which may acquit and never convicts.
            words = ", ".join(sorted(self.unruled)[:3])
            return Comparison(outcome="undecided", reason=f"no error bound is known for {words}")
        return found

    def _completed(self, observation: Observation) -> Observation:
        """The observation with the reference's own gradients in place of those that are missing."""
        given = {output.path: output for output in observation.outputs}
        outputs = tuple(
            given.get(leaf.path)
            or OutputTensor(path=leaf.path, data=leaf.data, dtype=leaf.dtype, strides=(), device="")
            for leaf in self.native
        )
        return replace(observation, outputs=outputs, structure=self.structure)

    @property
    def chooses(self) -> bool:
        return True

    def unsettled(self, found: Regime) -> list[Array] | None:
        """Where the gradient hangs on a choice that rounding decides."""
        if found.name not in self._kinks:
            self._kinks[found.name] = self._nonlinear(found)
        return self._kinks[found.name]

    def _nonlinear(self, found: Regime) -> list[Array]:
        small, large = self._spread(found, 1), self._spread(found, BLUR)
        masks = []
        for one, other, envelope in zip(small, large, self.envelope(found, SAMPLES), strict=True):
            linear = BLUR * one
            bent = (other > NONLINEAR * linear) | (other < linear / NONLINEAR)
            # What moves less than the envelope matters to no comparison.
            masks.append(bent & (np.maximum(linear, other) > BLUR * envelope))
        return masks

    def _spread(self, found: Regime, factor: int) -> list[Array]:
        """Root mean square deviation with all errors `factor` times as large and the inputs off by
        one rounding; the draws are the same for every factor."""
        regime = Regime(
            f"{found.name}, {factor} times",
            found.store * factor,
            found.accumulate * factor,
            found.operand * factor,
        )
        squares = [np.zeros(leaf.data.shape) for leaf in self.exact]
        for number in range(SAMPLES):
            noise = rules.Noise(regime, number, worst=not self._generic)
            moved = _moved(self._arguments, regime.store, number)
            leaves = self._lifted_run(Lifted(self.dtype, noise), moved)
            for total, leaf, centre in zip(squares, leaves, self.exact, strict=True):
                with np.errstate(all="ignore"):
                    off = leaf.data.astype(np.float64) - centre.data.astype(np.float64)
                    total += np.nan_to_num(off * off, nan=np.inf, posinf=np.inf)
        return [np.sqrt(total / SAMPLES) for total in squares]


def _moved(arguments: Arguments, roundoff: float, seed: int) -> Arguments:
    """Float64 inputs off by a rounding: ties between them break, and zeros leave zero."""
    generator = torch.Generator().manual_seed(seed)

    def move(path: str, value: Any) -> Any:
        if not isinstance(value, torch.Tensor) or not value.is_floating_point():
            return value
        wide = value.double()
        drawn = torch.rand(wide.shape, generator=generator, dtype=torch.float64) * 2 - 1
        typical = wide.square().mean().sqrt() if wide.numel() else wide.sum()
        size = torch.where(wide == 0, torch.where(typical > 0, typical, 1.0), wide.abs())
        return torch.where(wide.isfinite(), wide + roundoff * drawn * size, wide)

    return arguments.mapped(move)


def _dtype(tensor: torch.Tensor) -> str:
    return arrays.dtype_name(tensor.dtype)
