"""What the reference does to what it is given: which inputs and state it writes, what it hands on."""

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
    aliases: bool = False


def habits(reference: Callable[..., Any], arguments: Arguments) -> Habits:
    """Observed on one call, of `reference` itself and of a copy of the arguments.

    Raises:
        OutsideDomain: the reference does not answer.
    """
    arguments = arguments.copied()
    named = [*arguments.tensors(), *state_of(reference)]
    before = {name: (_version(t), t.detach().clone()) for name, t in named}
    result = answer(reference, arguments)
    writes = tuple(name for name, t in named if _written(t, *before[name]))
    storages = {t.untyped_storage().data_ptr() for _, t in named if t.numel()}
    outputs = [t for _, t in arrays.tensors_in(result) if t.numel()]
    return Habits(
        writes=writes,
        aliases=any(t.untyped_storage().data_ptr() in storages for t in outputs),
    )


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
