"""The stored record of a verdict: JSON, one schema number, readable by every later version."""

from __future__ import annotations

import json
import math
from dataclasses import asdict
from typing import Any

from adjudge.contract import SCHEMA, Verdict
from adjudge.errors import UsageError


def to_mapping(verdict: Verdict) -> dict[str, Any]:
    """Plain JSON values; infinities and NaN become the strings "inf", "-inf", "nan"."""
    mapping: dict[str, Any] = plain(asdict(verdict))
    return mapping


def to_json(verdict: Verdict, *, indent: int | None = 2) -> str:
    return json.dumps(to_mapping(verdict), indent=indent, allow_nan=False, ensure_ascii=False)


def from_json(text: str) -> Verdict:
    """The verdict that was written.

    Raises:
        UsageError: it is not a record, or was written by a newer version.
    """
    from pydantic import TypeAdapter, ValidationError

    try:
        found = json.loads(text)
    except ValueError as error:
        raise UsageError(f"the record is not JSON: {error}") from error
    schema = found.get("schema") if isinstance(found, dict) else None
    if not isinstance(schema, int) or schema > SCHEMA:
        raise UsageError(
            f"the record has schema {schema!r}; this version reads up to {SCHEMA}",
            todo="Use a newer adjudge to read it.",
        )
    try:
        verdict: Verdict = TypeAdapter(Verdict).validate_python(found)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"])
        raise UsageError(f"the record is damaged at {where}: {first['msg']}") from error
    return verdict


def json_schema() -> dict[str, Any]:
    """JSON Schema of the record, generated from the dataclasses."""
    from pydantic import TypeAdapter

    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Adjudge verdict",
        **TypeAdapter(Verdict).json_schema(),
    }


def plain(value: Any) -> Any:
    """JSON values; infinities and NaN as strings."""
    if isinstance(value, dict):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return "nan" if math.isnan(value) else ("inf" if value > 0 else "-inf")
    return value
