"""How fast a task could be done at best here: its bytes and operations, over what this machine does.

Bytes are those of inputs, parameters and outputs, each counted once; operations are those of the
reference's matrix products and convolutions (`torch.utils.flop_counter`). The machine's two ceilings are
measured, in a worker, as any program is: a large copy, and a square matrix product in the task's dtype.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

import torch
from torch.utils.flop_counter import FlopCounterMode

from adjudge import arrays
from adjudge.judge.cases import CaseBuilder
from adjudge.probe import Probe
from adjudge.program import Arguments, OutsideDomain, Program

#: Bytes copied, and width of the square product, on a CPU and on a GPU: several times a cache, and long
#: enough that what a launch costs does not count.
COPIED = {"interpret": 64 << 20, "cuda": 1 << 30}
WIDTHS = {"interpret": 512, "cuda": 8192}

CEILINGS = """
import torch

nothing = torch.zeros(1)


class Copy(torch.nn.Module):
    def __init__(self, size, dtype):
        super().__init__()
        self.register_buffer("source", torch.ones(size, dtype=torch.int8))
        self.register_buffer("target", torch.ones(size, dtype=torch.int8))

    def forward(self, x):
        self.target.copy_(self.source)
        return x


class Product(torch.nn.Module):
    def __init__(self, size, dtype):
        super().__init__()
        self.register_buffer("a", torch.randn(size, size).to(dtype))
        self.register_buffer("b", torch.randn(size, size).to(dtype))
        self.register_buffer("out", torch.empty(size, size, dtype=dtype))

    def forward(self, x):
        torch.mm(self.a, self.b, out=self.out)
        return x
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """What the reference's answer takes at least."""

    nbytes: int
    #: Floating-point operations of products and convolutions; 0 where there are none.
    operations: int
    #: The dtype that products are made in.
    dtype: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Ceilings:
    #: Bytes a second, read and written together.
    bandwidth: float
    #: Operations a second, 0 where none were asked for.
    rate: float


def work(program: Program, builder: CaseBuilder, arguments: Arguments, answered: int) -> Work:
    """Counted from the reference, without running it on data.

    Args:
        answered: bytes of its outputs.
    """
    given = sum(t.numel() * t.element_size() for _, t in arguments.tensors())
    weights = sum(
        prod(spec.shape) * arrays.torch_dtype(spec.dtype).itemsize
        for spec in program.task.parameters
    )
    floats = [t.dtype for _, t in arguments.tensors() if t.is_floating_point()]
    return Work(
        nbytes=given + weights + answered,
        operations=_operations(builder, arguments),
        dtype=arrays.dtype_name(floats[0]) if floats else "float32",
    )


def _operations(builder: CaseBuilder, arguments: Arguments) -> int:
    probe = Probe(sizes=())
    counter = FlopCounterMode(display=False)
    try:
        reference = builder.make(probe, arguments)()
        if isinstance(reference, torch.nn.Module):
            reference = reference.to("meta")
        there = arguments.mapped(lambda _, v: v.to("meta") if isinstance(v, torch.Tensor) else v)
        with torch.no_grad(), counter:
            reference(*there.args, **dict(there.kwargs))
    except (OutsideDomain, RuntimeError, NotImplementedError):
        # What reads its inputs' values cannot be counted without them.
        return 0
    return int(counter.get_total_flops())


def least_seconds(work: Work, ceilings: Ceilings) -> float:
    """Seconds under which nobody does the work here: the greater of moving it and computing it."""
    computing = work.operations / ceilings.rate if ceilings.rate else 0.0
    return max(work.nbytes / ceilings.bandwidth, computing)
