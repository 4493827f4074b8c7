"""A contract drafted from a reference: what can be seen of it, for its owner to correct."""

from __future__ import annotations

import dataclasses
import inspect
import json
import re
from collections.abc import Iterator
from typing import Any

from adjudge.contracts.file import DTYPES, STORED, WORDED
from adjudge.contracts.terms import (
    MeasurementPart,
    OraclePart,
    PostconditionPart,
    PreconditionPart,
    Quantised,
    ScopePart,
    SignaturePart,
    Terms,
    TolerancePart,
)
from adjudge.inputs.sampler import Sampler
from adjudge.judge.cases import CaseBuilder
from adjudge.oracle import Oracle
from adjudge.probe import Probe, sizes_of
from adjudge.program import OutsideDomain, Program
from adjudge.symbols import shrunken
from adjudge.task import Task

_BARE = re.compile(r"[A-Za-z0-9_-]+\Z")


def draft(program: Program) -> str:
    """The text of a file that `contract check` accepts.

    Sizes go from 1 to the native one, values are finite, the regime is the one that the reference gives,
    and what the reference writes over is declared in-place. The scales of what is stored in few bits are
    told by the names of the reference's arguments; a comment stands where these do not tell.
    """
    task = program.task
    regime, in_place, arguments = _observed(program)
    scales = _scales(arguments)
    terms = Terms(
        schema=1,
        identifier=re.sub(r"[^A-Za-z0-9._-]+", "-", task.name).strip("-.") or "contract",
        summary=f"what {task.name} promises",
        scope=ScopePart(
            words=_inputs(task),
            sizes={s.name: f"1..{s.native}" for s in task.symbols},
            dtypes=sorted({i.dtype for i in task.inputs if i.dtype in DTYPES} - set(STORED)),
            quantised=[
                Quantised(tensor=i.name, stored=i.dtype, scale=scales.get(i.name, ""))
                for i in task.inputs
                if i.dtype in STORED
            ],
        ),
        precondition=PreconditionPart(words="Inputs are finite.", values="finite"),
        postcondition=PostconditionPart(
            words="Every output element is the reference's, within the tolerance.",
            in_place=list(in_place),
        ),
        tolerance=TolerancePart(
            words="The derived error of the required precision regime.", regime=regime
        ),
        oracle=OraclePart(words="The reference in float64."),
        measurement=MeasurementPart(words="Every gate, on the probes that it plans."),
        signature=SignaturePart(words="As the gate that finds it reports it."),
    )
    return to_toml(terms)


def _inputs(task: Task) -> str:
    rows = []
    for spec in task.inputs:
        words = f"{spec.name}: {spec.dtype}{list(spec.shape)}"
        if spec.low is not None and spec.high is not None:
            words += f", drawn from {spec.low:.3g} to {spec.high:.3g}"
        rows.append(words)
    return "; ".join(rows) + "."


def _observed(program: Program) -> tuple[str, tuple[str, ...], tuple[str, ...]]:
    """The regime that the reference gives, what it writes over, and the names of its arguments."""
    probe = Probe(sizes=sizes_of(shrunken(program)))
    try:
        builder = CaseBuilder(program, by_name=False)
        arguments = program.arguments(dict(probe.sizes), Sampler(0))
        make = builder.make(probe, arguments)
        required = Oracle(make, arguments, generic=True).required
        called = make()
        names = tuple(inspect.signature(getattr(called, "forward", called)).parameters)
        return required, builder.habits(probe, arguments).writes, names
    except OutsideDomain:
        return "", (), ()


def _scales(names: tuple[str, ...]) -> dict[str, str]:
    """Input -> input that holds its scales, both by path, where one argument is named `x` and another
    `x_scale`, `x_scales` or `scale_x`."""
    at = {name: f"args[{number}]" for number, name in enumerate(names)}
    found = {}
    for name, path in at.items():
        wanted = (f"{name}_scale", f"{name}_scales", f"scale_{name}", f"scales_{name}")
        scale = next((at[word] for word in wanted if word in at), "")
        if scale:
            found[path] = scale
    return found


def to_toml(terms: Terms) -> str:
    """The terms as a file; fields that are at their default are left out."""
    lines = ["schema = 1", f"identifier = {_value(terms.identifier)}"]
    if terms.summary:
        lines.append(f"summary = {_value(terms.summary)}")
    for part in WORDED:
        held = getattr(terms, part)
        fields = dict(_given(held))
        tables = {k: v for k, v in fields.items() if isinstance(v, dict)}
        rows = {k: v for k, v in fields.items() if isinstance(v, list) and _is_rows(v)}
        lines += ["", f"[{part}]"]
        lines += [
            f"{name} = {_value(value)}"
            for name, value in fields.items()
            if name not in tables and name not in rows
        ]
        for name, table in tables.items():
            lines += ["", f"[{part}.{name}]"]
            lines += [f"{_key(key)} = {_value(value)}" for key, value in table.items()]
        for name, items in rows.items():
            for item in items:
                lines += ["", f"[[{part}.{name}]]"]
                lines += [f"{key} = {_value(value)}" for key, value in _given(item)]
                if isinstance(item, Quantised) and not item.scale:
                    lines.append("# scale = ...  (the input that holds its scales, if one does)")
    return "\n".join(lines) + "\n"


def _is_rows(value: list[Any]) -> bool:
    return bool(value) and dataclasses.is_dataclass(value[0])


def _given(part: Any) -> Iterator[tuple[str, Any]]:
    for field in dataclasses.fields(part):
        value = getattr(part, field.name)
        default = (
            field.default_factory()
            if field.default_factory is not dataclasses.MISSING
            else field.default
        )
        if value != default:
            yield field.name, value


def _key(name: str) -> str:
    return name if _BARE.match(name) else _value(name)


def _value(value: Any) -> str:
    if isinstance(value, dict):
        return "{" + ", ".join(f"{_key(k)} = {_value(v)}" for k, v in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(_value, value)) + "]"
    if isinstance(value, float):
        return repr(value)
    # A JSON string is a TOML string, but for the one control character that JSON leaves bare.
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
