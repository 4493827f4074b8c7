"""The task is judged first: a bad exam is said to be one."""

from __future__ import annotations

from typing import Any

import torch

from adjudge import arrays
from adjudge.inputs.sampler import Sampler
from adjudge.program import Arguments, OutsideDomain, Program, answer
from adjudge.symbols import shrunken

#: Said of a reference that no candidate can agree with.
RANDOM = "the reference is random: two runs on the same inputs differ"
#: The field's usual absolute tolerance: outputs below it pass as zeros.
USUAL_TOLERANCE = 1e-2


def examine(program: Program) -> tuple[str, ...]:
    """What is doubtful about the task, one sentence each; nothing if it is a fair exam."""
    sizes = shrunken(program)
    try:
        first = _answers(program, sizes, seed=0, state=0)
        again = _answers(program, sizes, seed=0, state=1)
        other = _answers(program, sizes, seed=1, state=0)
    except OutsideDomain as why:
        return (f"the reference does not answer on its own inputs: {why}",)
    found = []
    if not _same(first, again):
        found.append(RANDOM)
    if _same(first, other):
        found.append("the output does not depend on the inputs' values: a constant would pass")
    floats = [arrays.computable(t) for t in first if t.is_floating_point() and t.numel()]
    if floats and all(bool(t.isnan().all()) for t in floats):
        found.append("the reference gives nothing but NaN on ordinary inputs")
    elif floats and max(float(t.abs().nan_to_num().max()) for t in floats) < USUAL_TOLERANCE:
        found.append("every output is below 1e-2: zeros pass the usual test")
    found += _unused(program, sizes, first)
    return tuple(found)


def _run(program: Program, arguments: Arguments, state: int = 0) -> list[torch.Tensor]:
    """The outputs, called under that state of torch's generator."""
    model = program.construct(arguments, seed=0, redrawn=False)
    torch.default_generator.manual_seed(state)
    return [t for _, t in arrays.tensors_in(answer(model, arguments))]


def _answers(program: Program, sizes: dict[str, int], seed: int, state: int) -> list[torch.Tensor]:
    return _run(program, program.arguments(sizes, Sampler(seed)), state)


def _unused(program: Program, sizes: dict[str, int], first: list[torch.Tensor]) -> list[str]:
    """Inputs that can be zeroed without any output changing."""
    arguments = program.arguments(sizes, Sampler(0))
    names = [name for name, t in arrays.tensors_in(arguments.args, "args") if t.numel()]
    unused = []
    for name in names:

        def zeroed(where: str, value: Any, name: str = name) -> Any:
            return torch.zeros_like(value) if where == name else value

        changed = arguments.mapped(zeroed)
        try:
            if _same(first, _run(program, changed)):
                unused.append(f"{name} has no influence on the output")
        except OutsideDomain:
            continue
    return unused


def _same(one: list[torch.Tensor], other: list[torch.Tensor]) -> bool:
    return len(one) == len(other) and all(
        a.shape == b.shape and torch.equal(torch.nan_to_num(a), torch.nan_to_num(b))
        for a, b in zip(one, other, strict=True)
    )
