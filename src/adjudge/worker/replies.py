"""From a worker's reply to an Observation. Every field is checked: the sender is hostile."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Collection
from dataclasses import replace
from math import prod
from typing import Any

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from adjudge import arrays
from adjudge.observation import (
    FINAL,
    AccessFault,
    Observation,
    OutputTensor,
    Race,
    Raised,
    Status,
)
from adjudge.static import nvcc
from adjudge.task import Launch
from adjudge.worker.complaints import UNBUILT

#: A leaf of a structure in words: alone between brackets, commas and colons, as no key of a mapping is.
_LEAF = re.compile(r"(?:^|[(\[ ])(?:tensor|number)(?=$|[)\]},])")
#: Where an output may begin in the memory that holds it.
_LARGEST_START = 1 << 40
#: The files of an extension that torch compiles.
_SOURCE = re.compile(r"\S*/((?:cuda|main)\.(?:cu|cpp))\b")
_LONGEST_COMPLAINT = 1000
#: Bytes of all outputs together that are read back.
LARGEST_OUTPUT = 2 << 30
_DTYPES = frozenset(
    "float64 float32 float16 bfloat16 float8_e4m3fn float8_e5m2 int64 int32 int16 int8 uint8 "
    "bool complex64 complex128 uint16 uint32 uint64".split()
)


#: What reading a hostile reply may raise.
_HOSTILE = (ValidationError, ValueError, TypeError, KeyError, OverflowError, OSError)


class Malformed(Exception):
    """The reply breaks the protocol."""


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)


class _Output(_Strict):
    path: str = Field(max_length=500)
    dtype: str
    shape: list[int] = Field(max_length=64)
    strides: list[int] = Field(max_length=64)
    start: int = Field(ge=0, le=_LARGEST_START)
    nbytes: int = Field(ge=0, le=LARGEST_OUTPUT)
    device: str = Field(max_length=40)
    requires_grad: bool
    aliases: list[str] = Field(max_length=1000)
    aliases_previous: bool
    scalar: bool


class _Raised(_Strict):
    type: str = Field(max_length=300)
    message: str = Field(max_length=20_000)
    traceback: str = Field(max_length=40_000)
    phase: str = Field(max_length=40)
    from_candidate: bool
    complaint: str = Field("", max_length=2_000)


class _Reply(_Strict):
    status: str
    structure: str = Field("", max_length=20_000)
    outputs: list[_Output] = Field(default_factory=list, max_length=10_000)
    raised: _Raised | None = None
    mutated_parameters: list[str] = Field(default_factory=list, max_length=100_000)
    state: list[_Output] = Field(default_factory=list, max_length=10_000)
    faults: list[dict[str, Any]] = Field(default_factory=list, max_length=1000)
    races: list[dict[str, Any]] = Field(default_factory=list, max_length=1000)
    launches: list[dict[str, Any]] = Field(default_factory=list, max_length=10_000)
    tampering: list[str] = Field(default_factory=list, max_length=1000)
    sandbox_notes: list[str] = Field(default_factory=list, max_length=1000)
    call_digests: list[str] = Field(default_factory=list, max_length=1000)
    earlier_output_changed: bool = False
    backward: str = Field("", pattern="^(autograd|function|explicit|)$")
    missing: list[str] = Field(default_factory=list, max_length=100_000)
    disconnected: list[str] = Field(default_factory=list, max_length=10_000)
    peak_bytes: int = 0
    live_bytes: list[int] = Field(default_factory=list, max_length=1000)
    library: list[str] = Field(default_factory=list, max_length=1000)
    seconds: float = 0.0
    compiled: list[float] = Field(default_factory=list, max_length=1000)
    notes: list[str] = Field(default_factory=list, max_length=1000)
    unsupported: bool = False


def observation(
    reply: dict[str, Any], fds: list[int], *, state: Collection[str] = ()
) -> Observation:
    """The observation in a run's reply.

    Args:
        state: names of the parameters and buffers whose content was asked for.

    Raises:
        Malformed: a field is missing, of another type, or out of bounds.
    """
    try:
        found = _Reply.model_validate(reply)
        status = Status(found.status)
        if status not in (
            Status.ANSWERED, Status.RAISED, Status.UNREADABLE, Status.UNSUPPORTED
        ):  # fmt: skip
            raise Malformed(f"a worker cannot report status {status.value}")
        if len(_LEAF.findall(found.structure)) != len(found.outputs):
            raise Malformed("outputs that do not fit their structure")
        named = [row.path for row in found.state]
        if len(set(named)) != len(named) or not set(named) <= set(state):
            raise Malformed("state that was not asked for")
        tensors = _outputs([*found.outputs, *found.state], fds)
        held = tensors[len(found.outputs) :]
        return Observation(
            status=status,
            outputs=tensors[: len(found.outputs)],
            state=tuple(replace(t, path=f"{FINAL}{t.path}") for t in held),
            structure=found.structure,
            raised=_built(Raised(**found.raised.model_dump())) if found.raised else None,
            ending="; ".join(found.notes) if status is Status.UNREADABLE else "",
            mutated_parameters=tuple(found.mutated_parameters),
            faults=tuple(AccessFault(**_clipped(item)) for item in found.faults),
            races=tuple(_race(item) for item in found.races),
            launches=tuple(_launch(item) for item in found.launches),
            tampering=tuple(text[:300] for text in found.tampering),
            sandbox_notes=tuple(text[:300] for text in found.sandbox_notes),
            call_digests=tuple(found.call_digests),
            earlier_output_changed=found.earlier_output_changed,
            backward=found.backward,
            missing=tuple(name[:500] for name in found.missing),
            disconnected=tuple(path[:500] for path in found.disconnected),
            peak_bytes=found.peak_bytes,
            live_bytes=tuple(found.live_bytes),
            library=tuple(name[:100] for name in found.library),
            seconds=found.seconds,
            compiled=tuple(found.compiled),
            notes=tuple(text[:500] for text in found.notes),
        )
    except _HOSTILE as error:
        raise Malformed(f"a malformed reply: {str(error)[:500]}") from error


def _outputs(rows: list[_Output], fds: list[int]) -> tuple[OutputTensor, ...]:
    total = sum(row.nbytes for row in rows)
    if total > LARGEST_OUTPUT:
        raise Malformed(f"outputs of {total:,} bytes, more than {LARGEST_OUTPUT:,}")
    if total and not fds:
        raise Malformed("outputs without their bytes")
    if fds and not stat.S_ISREG(os.fstat(fds[0]).st_mode):
        raise Malformed("outputs in something that is not memory")
    return tuple(_output(row, fds[0] if fds else -1) for row in rows)


def _output(row: _Output, fd: int) -> OutputTensor:
    if row.dtype not in _DTYPES or any(n < 0 for n in row.shape):
        raise Malformed(f"an output of dtype {row.dtype!r} and shape {row.shape}")
    dtype = arrays.numpy_dtype(row.dtype)
    if prod(row.shape) * dtype.itemsize != row.nbytes:
        raise Malformed(f"an output of {row.nbytes} bytes for {row.dtype}{row.shape}")
    # pread copies: the candidate may still be writing to the memory it sent.
    raw = _read(fd, row.nbytes, row.start)
    return OutputTensor(
        path=row.path,
        data=np.frombuffer(raw, dtype=dtype).reshape(row.shape),
        dtype=row.dtype,
        strides=tuple(row.strides),
        device=row.device,
        requires_grad=row.requires_grad,
        aliases=tuple(row.aliases),
        aliases_previous=row.aliases_previous,
        scalar=row.scalar,
    )


def _read(fd: int, count: int, start: int) -> bytes:
    parts = []
    while count:
        part = os.pread(fd, min(count, 1 << 26), start)
        if not part:
            raise Malformed("fewer output bytes than declared")
        parts.append(part)
        count -= len(part)
        start += len(part)
    return b"".join(parts)


def _clipped(item: dict[str, Any]) -> dict[str, Any]:
    return {
        "kind": str(item["kind"])[:20],
        "tensor": str(item["tensor"])[:200],
        "offset": int(item["offset"]),
        "kernel": str(item.get("kernel", ""))[:200],
        "line": int(item.get("line", 0)),
        "lanes": int(item.get("lanes", 1)),
    }


def _race(item: dict[str, Any]) -> Race:
    first, second = item["instances"]
    return Race(
        kernel=str(item["kernel"])[:200],
        tensor=str(item["tensor"])[:200],
        line=int(item["line"]),
        instances=(int(first), int(second)),
    )


def _launch(item: dict[str, Any]) -> Launch:
    return Launch(
        kernel=str(item["kernel"])[:200],
        grid=tuple(int(n) for n in item["grid"])[:3],
        constants=tuple((str(k)[:100], int(v)) for k, v in item["constants"])[:200],
        parameters=tuple((str(k)[:100], str(v)[:200]) for k, v in item["parameters"])[:200],
        options=tuple((str(k)[:100], int(v)) for k, v in item["options"])[:20],
        configs=int(item["configs"]),
        config=int(item["config"]),
    )


def raised(reply: dict[str, Any]) -> Raised | None:
    """The exception in a load's or description's reply; a malformed one reads as a bare error."""
    if reply.get("raised") is None:
        return None
    try:
        return _built(Raised(**_Raised.model_validate(reply["raised"]).model_dump()))
    except ValidationError:
        return Raised(type="Error", message="unreadable", traceback="", phase="load")


def _built(raised: Raised) -> Raised:
    """What a compiler says of a candidate's extension, its first errors before all else: they stand far
    down in what torch passes on, below the command lines."""
    if not raised.message.startswith(UNBUILT):
        return raised
    words = nvcc.complaint(raised.message)
    return replace(raised, message=_SOURCE.sub(r"\1", words)[:_LONGEST_COMPLAINT])


def weights(reply: dict[str, Any]) -> tuple[tuple[str, tuple[int, ...], str, str], ...]:
    """(name, shape, dtype, digest) of each parameter; rows that are none are left out."""
    rows = reply.get("weights")
    if not isinstance(rows, list):
        return ()
    found = []
    for row in rows[:100_000]:
        if isinstance(row, list) and len(row) == 4 and isinstance(row[1], list):
            name, shape, dtype, digest = row
            if all(type(n) is int for n in shape):
                found.append((str(name), tuple(shape), str(dtype), str(digest)))
    return tuple(found)
