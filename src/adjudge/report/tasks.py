"""A task as a person reads it in a terminal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from adjudge.task import Symbol, Task, TensorSpec


def task_report(task: Task, small: Mapping[str, int], doubts: Sequence[str]) -> RenderableType:
    """Inputs, symbols and doubts.

    Args:
        small: the sizes that ordinary probes use.
        doubts: what is wrong with the task itself.
    """
    symbols = Table(box=None, header_style="dim", padding=(0, 2))
    for title in ("symbol", "native", "small", "moves"):
        symbols.add_column(title)
    for symbol in task.symbols:
        row = (symbol.name, str(symbol.native), str(small.get(symbol.name, "")), _moves(symbol))
        symbols.add_row(*row)
    tensors = Table(box=None, header_style="dim", padding=(0, 2))
    for title in ("input", "dtype", "native shape", "range"):
        tensors.add_column(title)
    for spec in task.inputs:
        shape = "[" + ", ".join(map(str, spec.shape)) + "]"
        tensors.add_row(Text(spec.name), spec.dtype, Text(shape), _range(spec))
    parts: list[RenderableType] = [Text(task.name, style="bold"), tensors]
    if task.symbols:
        parts.append(symbols)
    else:
        parts.append(Text("no size can be varied: only the native shape will be judged"))
    if task.parameters:
        parts.append(Text(f"{len(task.parameters)} parameters and buffers"))
    parts += [Text(f"! {doubt}", style="yellow") for doubt in doubts]
    return Group(*parts)


def _moves(symbol: Symbol) -> str:
    axes = [f"{name} axis {axis}" for name, axis in symbol.axes]
    return ", ".join([*axes, *(f"constructor argument {i}" for i in symbol.init_args)])


def _range(spec: TensorSpec) -> str:
    if spec.low is None or spec.high is None:
        return ""
    return f"{spec.low:.3g} to {spec.high:.3g}"
