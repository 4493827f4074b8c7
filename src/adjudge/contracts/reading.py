"""TOML files read at the edge: every mistake is one message with its line and what to do."""

from __future__ import annotations

import dataclasses
import difflib
import json
import re
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from adjudge.contracts.lines import MOST_NESTED, Lines, lines_of, too_deep
from adjudge.errors import UsageError
from adjudge.frontends.sources import read

if TYPE_CHECKING:
    from pydantic import TypeAdapter
    from pydantic_core import ErrorDetails

T = TypeVar("T")

_TOO_LONG = "a number has more digits than any size or tolerance can"
_PLACE = re.compile(r" \(at line (\d+), column \d+\)$")
_END = re.compile(r" \(at end of document\)$")


@dataclasses.dataclass(frozen=True, slots=True)
class Text:
    """The text of one file, and where its keys stand."""

    path: str
    text: str
    lines: Lines

    def mistake(self, at: Sequence[str | int], what: str, *, todo: str = "") -> UsageError:
        """An error that points at a key, or at what encloses it where it is missing."""
        return UsageError(what, where=f"{self.path}:{self.lines.at(at)}", todo=todo)


def parsed(path: Path) -> tuple[Text, dict[str, Any]]:
    """The file and its plain content.

    Raises:
        UsageError: there is no such file, or it is not TOML; the message names the line.
    """
    text = read(path)
    deep = too_deep(text)
    if deep is not None:
        raise UsageError(
            f"keys and brackets lie more than {MOST_NESTED} deep in one another",
            where=f"{path}:{deep}",
            todo="No field of these files lies as deep: remove it.",
        )
    try:
        content = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        place = _PLACE.search(str(error))
        line = int(place[1]) if place else text.count("\n") + 1
        words = _END.sub("", _PLACE.sub("", str(error)))
        raise UsageError(f"is not TOML: {words}", where=f"{path}:{line}") from None
    except ValueError:
        # Of an integer that Python refuses for its digits alone there is no place.
        raise UsageError(_TOO_LONG, where=f"{path}:{_longest(text)}") from None
    return Text(str(path), text, lines_of(text)), content


def validated(kind: type[T], content: Mapping[str, Any], text: Text) -> T:
    """The content as `kind`, a dataclass.

    Raises:
        UsageError: a field is missing, unknown, or of another type.
    """
    from pydantic import ValidationError

    try:
        # By way of JSON, where strict types still let a mapping be a dataclass and a text a date.
        found: T = _adapter(kind).validate_json(  # type: ignore[arg-type]
            json.dumps(content, default=str)
        )
    except ValidationError as error:
        raise _told(kind, error.errors(), text) from None
    return found


def _longest(text: str) -> int:
    """The line with the longest run of digits."""
    return text.count("\n", 0, max(re.finditer(r"\d+", text), key=_length).start()) + 1


def _length(match: re.Match[str]) -> int:
    return match.end() - match.start()


@cache
def _adapter(kind: type) -> TypeAdapter[Any]:
    from pydantic import TypeAdapter

    return TypeAdapter(kind)


def near(word: str, names: Iterable[str]) -> str:
    """What to say to someone who wrote a name that there is none of."""
    known = list(names)
    found = difflib.get_close_matches(word, known, n=2, cutoff=0.5)
    if found:
        return f"Did you mean {' or '.join(found)}?"
    return f"There are: {', '.join(known)}." if known else ""


def _told(kind: type, errors: list[ErrorDetails], text: Text) -> UsageError:
    # An unknown field is most often a missing one misspelt: it is told first.
    first = min(errors, key=lambda error: error["type"] not in _UNKNOWN)
    path = [part for part in first["loc"] if not _is_branch(part)]
    name = ".".join(map(str, path))
    if first["type"] in _UNKNOWN:
        names = _fields(_class_at(kind, path[:-1]))
        return text.mistake(path, f"there is no field {name}", todo=near(str(path[-1]), names))
    if first["type"] == "missing":
        holder = _class_at(kind, path[:-1])
        return text.mistake(
            path, f"{name} is missing", todo=f"Add it: {_description(holder, str(path[-1]))}"
        )
    return text.mistake(path, f"{name}: {_words(first['msg'])}, and is {first['input']!r}"[:300])


_UNKNOWN = ("unexpected_keyword_argument", "extra_forbidden")


def _words(message: str) -> str:
    return message[:1].lower() + message[1:]


def _is_branch(part: str | int) -> bool:
    """pydantic names the branch of a union in a location ("list[union[int,str]]"); keys do not."""
    return isinstance(part, str) and (part in ("int", "str") or ("[" in part and "union" in part))


def _fields(holder: type | None) -> list[str]:
    return [f.name for f in dataclasses.fields(holder)] if holder is not None else []


def _class_at(kind: type, path: Sequence[str | int]) -> type | None:
    """The dataclass that holds what stands at the path; None where that is no dataclass."""
    import typing

    held: Any = kind
    for part in path:
        if isinstance(part, int):
            held = next(iter(typing.get_args(held)), None)
        elif dataclasses.is_dataclass(held):
            held = typing.get_type_hints(held).get(part)
        else:
            return None
    return held if isinstance(held, type) and dataclasses.is_dataclass(held) else None


def _description(holder: type | None, name: str) -> str:
    """What the published schema says of the field."""
    from pydantic import TypeAdapter

    if holder is None:
        return ""
    schema = TypeAdapter(holder).json_schema()
    field = schema["properties"][name]
    part = schema.get("$defs", {}).get(str(field.get("$ref", "")).rpartition("/")[2], {})
    return str(field.get("description") or part.get("description", ""))
