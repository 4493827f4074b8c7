"""Program: the trusted reference as something the judge can execute.

Frontends make programs; the judge and the oracle run them. The worker never sees one.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Protocol

import torch

from adjudge import arrays
from adjudge.task import Task

if TYPE_CHECKING:
    from adjudge.inputs.sampler import Sampler


class OutsideDomain(Exception):
    """The reference does not answer at these sizes or values: the probe is not asked.

    Never a fault of the candidate, nor of the task.
    """


@dataclass(frozen=True, slots=True, kw_only=True)
class Arguments:
    """Everything that goes into one call: constructor arguments, then call arguments.

    Leaves are torch tensors (native dtype, contiguous), numbers, strings, booleans, None, torch
    dtypes; containers are tuples, lists and dicts.
    """

    init_args: tuple[Any, ...] = ()
    init_kwargs: Mapping[str, Any] = field(default_factory=dict)
    args: tuple[Any, ...] = ()
    kwargs: Mapping[str, Any] = field(default_factory=dict)

    def tensors(self) -> list[tuple[str, torch.Tensor]]:
        """(path, tensor) of the call's arguments: "args[0]", "kwargs['mask']"."""
        return [
            *arrays.tensors_in(self.args, "args"),
            *arrays.tensors_in(dict(self.kwargs), "kwargs"),
        ]

    def mapped(self, leaf: Callable[[str, Any], Any]) -> Arguments:
        """The same with every leaf of the call's arguments replaced by `leaf(path, value)`."""
        return replace(
            self,
            args=arrays.map_leaves(self.args, leaf, "args"),
            kwargs=arrays.map_leaves(dict(self.kwargs), leaf, "kwargs"),
        )

    def copied(self) -> Arguments:
        """The same with tensors of its own, for a call that may write to them."""
        return self.mapped(lambda _, v: v.clone() if isinstance(v, torch.Tensor) else copy.copy(v))


def answer(reference: Callable[..., Any], arguments: Arguments) -> Any:
    """What the reference returns, without gradients. The caller copies what must not be written to.

    Raises:
        OutsideDomain: it raises.
    """
    try:
        with torch.no_grad():
            return reference(*arguments.args, **dict(arguments.kwargs))
    except Exception as error:
        raise OutsideDomain(f"{type(error).__name__}: {error}") from error


class Program(Protocol):
    """What a frontend yields beside the candidate."""

    @property
    def task(self) -> Task: ...

    def arguments(self, sizes: Mapping[str, int], sampler: Sampler) -> Arguments:
        """The task's inputs at the given sizes, every random draw made by `sampler`.

        Raises:
            OutsideDomain: the task has no inputs at these sizes.
        """
        ...

    def construct(self, arguments: Arguments, *, seed: int, redrawn: bool) -> Callable[..., Any]:
        """The reference, ready to be called: a module with its weights, or the function itself.

        Construction under `torch.manual_seed(seed)`, in the mode that the harness leaves it in.
        `redrawn` constructs under initialisers that leave no identity default (ones, zeros).
        Every call returns a fresh object.

        Raises:
            OutsideDomain: the reference cannot be constructed with these arguments.
        """
        ...
