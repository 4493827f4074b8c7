"""What the reference does to what it is given: which inputs and state it writes, and hands on."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from adjudge import arrays
from adjudge.program import Arguments, answer


@dataclass(frozen=True, slots=True, kw_only=True)
class Habits:
    """Field meanings as in `task.Discovery`."""

    writes: tuple[str, ...] = ()


def habits(reference: Callable[..., Any], arguments: Arguments) -> Habits:
    """Observed on one call, of `reference` itself and of a copy of the arguments.

    Raises:
        OutsideDomain: the reference does not answer.
    """
    arguments = arguments.copied()
    named = [*arguments.tensors(), *state_of(reference)]
    before = {name: (_version(t), t.detach().clone()) for name, t in named}
    answer(reference, arguments)
    return Habits(writes=tuple(name for name, t in named if _written(t, *before[name])))


def hands_on(reference: Callable[..., Any], arguments: Arguments) -> bool:
    """Whether an output lies in the memory of an argument or of the reference's state. Observed on one
    call, of `reference` and of the arguments themselves.

    Raises:
        OutsideDomain: the reference does not answer.
    """
    named = [*arguments.tensors(), *state_of(reference)]
    storages = {t.untyped_storage().data_ptr() for _, t in named if t.numel()}
    outputs = [t for _, t in arrays.tensors_in(answer(reference, arguments)) if t.numel()]
    return any(t.untyped_storage().data_ptr() in storages for t in outputs)


def state_of(reference: Callable[..., Any]) -> list[tuple[str, torch.Tensor]]:
    """Parameters and buffers by name; none of a function."""
    if not isinstance(reference, torch.nn.Module):
        return []
    return list(reference.state_dict(keep_vars=True).items())


def _written(tensor: torch.Tensor, version: int, content: torch.Tensor) -> bool:
    """Whether it was written, by its version: a relu in place leaves positive values as they were, and
    has written them. Running statistics change without one."""
    if _version(tensor) != version:
        return True
    return arrays.to_numpy(tensor).tobytes() != arrays.to_numpy(content).tobytes()


def _version(tensor: torch.Tensor) -> int:
    return 0 if tensor.is_inference() else tensor._version
