"""Program: the trusted reference as something the judge can execute.

Frontends make programs; the judge and the oracle run them. The worker never sees one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

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
