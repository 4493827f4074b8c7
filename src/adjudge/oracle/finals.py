"""The truth about what a call leaves behind: the inputs and the state that the reference writes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import torch

from adjudge import arrays
from adjudge.observation import FINAL, Observation, OutputTensor
from adjudge.oracle.evaluate import Leaf, Make, Oracle
from adjudge.program import Arguments, OutsideDomain, answer


class FinalOracle(Oracle):
    """Evaluates the content after one call, under the same envelope as an output.

    Args:
        names: inputs by path, parameters and buffers by name.
    """

    def __init__(
        self,
        make: Make,
        arguments: Arguments,
        *,
        generic: bool,
        names: Sequence[str],
        seed: int = 0,
    ) -> None:
        super().__init__(make, arguments, generic=generic, seed=seed)
        self._names = names

    def _evaluated(
        self, reference: Callable[..., Any], arguments: Arguments
    ) -> tuple[str, list[Leaf]]:
        answer(reference, arguments)
        held = dict(arguments.tensors())
        if isinstance(reference, torch.nn.Module):
            held |= reference.state_dict()
        absent = [name for name in self._names if name not in held]
        if absent:
            raise OutsideDomain(f"the reference has no {absent[0]} after the call")
        leaves = [_leaf(name, held[name]) for name in self._names]
        return f"({', '.join(['tensor'] * len(leaves))})", leaves

    def left_behind(self, observation: Observation) -> Observation:
        """The observation with what it has left behind in place of its outputs; the reference's own
        content stands for state that the candidate has not, or has in another form."""
        given = {t.path: t for t in (*observation.finals, *observation.state)}
        found = (_matching(given.get(leaf.path), leaf) for leaf in self.native)
        return replace(observation, outputs=tuple(found), structure=self.structure)


def _leaf(name: str, tensor: torch.Tensor) -> Leaf:
    data = arrays.to_numpy(tensor).copy()
    return Leaf(f"{FINAL}{name}", data, arrays.dtype_name(tensor.dtype))


def _matching(given: OutputTensor | None, leaf: Leaf) -> OutputTensor:
    if given is not None and (given.dtype, given.data.shape) == (leaf.dtype, leaf.data.shape):
        return given
    return OutputTensor(path=leaf.path, data=leaf.data, dtype=leaf.dtype, strides=(), device="")
