"""Probes and recipes as one line that can be pasted, and back.

A line is a version letter, then base64url of the zlib-compressed canonical JSON with a CRC-32 in
front. Later versions of this package read every earlier letter.
"""

from __future__ import annotations

import base64
import binascii
import json
import zlib
from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from adjudge.errors import UsageError
from adjudge.inputs.batches import WORDS
from adjudge.probe import ORDINARY, Probe

#: Letter of the format written today.
VERSION = "A"
#: A line longer than this is not ours; decompression is bounded by the same idea.
_LONGEST = 20_000
_LARGEST = 1 << 20


def probe_to_mapping(probe: Probe) -> dict[str, Any]:
    """Only the fields that differ from the ordinary run."""
    out: dict[str, Any] = {}
    for field in fields(Probe):
        value = getattr(probe, field.name)
        if value != getattr(ORDINARY, field.name):
            out[field.name] = [list(x) for x in value] if field.name == "sizes" else value
    return out


def probe_from_mapping(mapping: Mapping[str, Any]) -> Probe:
    """Raises UsageError on a field this version does not know."""
    known = {field.name for field in fields(Probe)}
    unknown = sorted(set(mapping) - known)
    if unknown:
        raise UsageError(
            f"the recipe has fields this version does not know: {', '.join(unknown)}",
            todo="Use a newer adjudge to replay it.",
        )
    values = dict(mapping)
    if "sizes" in values:
        values["sizes"] = tuple((str(name), int(size)) for name, size in values["sizes"])
    if "history" in values:
        values["history"] = tuple(values["history"])
    return Probe(**values)


def encode(probe: Probe) -> str:
    return _pack(probe_to_mapping(probe))


def decode(line: str) -> Probe:
    return probe_from_mapping(_unpack(line))


def encode_recipe(recipe: Mapping[str, Any]) -> str:
    """A recipe holds a "probe" (Probe), a "base" (sizes), and plain JSON values beside them."""
    plain = dict(recipe)
    plain["probe"] = probe_to_mapping(recipe["probe"])
    plain["base"] = [list(item) for item in recipe["base"]]
    return _pack(plain)


def decode_recipe(line: str) -> dict[str, Any]:
    """The mapping given to `encode_recipe`.

    Raises:
        UsageError: the line is damaged, or written by a newer version.
    """
    recipe = _unpack(line)
    missing = {"gate", "probe", "base", "regime", "required", "outputs", "inputs"} - set(recipe)
    if missing:
        raise UsageError(f"the recipe lacks {', '.join(sorted(missing))}")
    recipe["probe"] = probe_from_mapping(recipe["probe"])
    recipe["base"] = tuple((str(name), int(size)) for name, size in recipe["base"])
    return recipe


def describe(probe: Probe) -> str:
    """What is unusual about the probe, in words: "M=3 N=65 · nan@last · sliced"."""
    parts = [" ".join(f"{name}={size}" for name, size in probe.sizes)] if probe.sizes else []
    for name in probe.factors:
        value = getattr(probe, name)
        if name == "history":
            parts.append(f"after {_history(value)}")
        elif name == "cotangent":
            parts.append(f"gradient, {value} cotangent")
        elif name == "batch":
            parts.append(WORDS[value])
        elif name in ("distribution", "special", "layout"):
            parts.append(str(value))
        else:
            parts.append(f"{name} {value}")
    if probe.seed:
        parts.append(f"seed {probe.seed}")
    return " · ".join(parts) or "the ordinary run"


def _history(history: tuple[str, ...]) -> str:
    if len(history) > 3 and len(set(history)) == 1:
        return f"{len(history)} x {history[0]}"
    return ", ".join(history)


def _pack(mapping: Mapping[str, Any]) -> str:
    text = json.dumps(mapping, sort_keys=True, separators=(",", ":")).encode()
    body = zlib.crc32(text).to_bytes(4, "big") + zlib.compress(text, 9)
    return VERSION + base64.urlsafe_b64encode(body).decode().rstrip("=")


def _unpack(line: str) -> dict[str, Any]:
    line = line.strip()
    if not line or len(line) > _LONGEST or line[0] != VERSION:
        raise UsageError(
            "this is not a recipe that this version can read",
            todo="Copy the whole line that follows `adjudge replay`, without quotes.",
        )
    try:
        body = base64.urlsafe_b64decode(line[1:] + "=" * (-len(line[1:]) % 4))
        text = zlib.decompressobj().decompress(body[4:], _LARGEST)
        if zlib.crc32(text).to_bytes(4, "big") != body[:4]:
            raise ValueError("checksum")
        found = json.loads(text)
    except (ValueError, zlib.error, binascii.Error) as error:
        raise UsageError("the recipe is damaged: a character was lost or changed") from error
    if not isinstance(found, dict):
        raise UsageError("the recipe is damaged: it does not hold a mapping")
    return found
