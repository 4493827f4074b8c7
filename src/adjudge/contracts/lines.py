"""Where in a TOML text each key stands. The standard library's parser keeps no lines."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

Path = tuple[str | int, ...]

#: How deep keys, arrays and inline tables may lie in one another. A contract nests six deep (a list of
#: sizes in a refusal); `tomllib`, which recurses, gives up at some hundreds.
MOST_NESTED = 64

_OPENING, _CLOSING = "[{", "]}"


@dataclass(frozen=True, slots=True)
class Lines:
    """Line numbers, from 1, of the keys of a text that `tomllib` has accepted."""

    of: Mapping[Path, int] = field(default_factory=dict)

    def at(self, path: Sequence[str | int]) -> int:
        """The line of that key, or of the nearest key or table that encloses it; 1 if there is none."""
        here = tuple(path)
        while here:
            if here in self.of:
                return self.of[here]
            here = here[:-1]
        return 1


def lines_of(text: str) -> Lines:
    """The lines of every key and table that stands on a line of its own. What is inside an inline
    table or an array has the line of its key."""
    found: dict[Path, int] = {}
    arrays: dict[Path, int] = {}
    table: Path = ()
    for number, statement in _statements(text):
        if statement.startswith("[["):
            whole = _resolved(_keys(statement[2:]), arrays)
            arrays[whole] = arrays.get(whole, -1) + 1
            table = (*whole, arrays[whole])
            found.setdefault(whole, number)
            found[table] = number
        elif statement.startswith("["):
            table = _resolved(_keys(statement[1:]), arrays)
            found[table] = number
        else:
            path = table
            for key in _keys(statement):
                path = (*path, key)
                found.setdefault(path, number)
    return Lines(found)


def too_deep(text: str) -> int | None:
    """The line where a text, TOML or not, first nests deeper than MOST_NESTED; None if it does not."""
    lines = [line for line, statement in _statements(text) if len(_keys(statement)) > MOST_NESTED]
    depth = 0
    for line, _, character in _marks(text):
        depth += (character in _OPENING) - (character in _CLOSING)
        if depth > MOST_NESTED:
            lines.append(line)
            break
    return min(lines, default=None)


def _resolved(keys: list[str], arrays: Mapping[Path, int]) -> Path:
    """The path of a table; each enclosing array of tables stands for its latest element."""
    path: Path = ()
    for position, key in enumerate(keys):
        path = (*path, key)
        if path in arrays and position < len(keys) - 1:
            path = (*path, arrays[path])
    return path


def _statements(text: str) -> Iterator[tuple[int, str]]:
    """(line, text from there on) of each statement: keys and table headers, outside of any value."""
    depth, fresh = 0, True
    for line, position, character in _marks(text):
        if fresh and depth == 0 and character not in " \t\r\n":
            end = text.find("\n", position)
            yield line, text[position : end if end >= 0 else len(text)]
            fresh = False
        depth += (character in _OPENING) - (character in _CLOSING)
        fresh = fresh or (character == "\n" and depth == 0)


def _marks(text: str) -> Iterator[tuple[int, int, str]]:
    """(line, position, character) outside of comments; of a string its opening quote only."""
    line, position = 1, 0
    while position < len(text):
        character = text[position]
        if character == "#":
            end = text.find("\n", position)
            position = end if end >= 0 else len(text)
            continue
        yield line, position, character
        if character in "\"'":
            after = _past_string(text, position)
            line += text.count("\n", position, after)
            position = after
            continue
        line += character == "\n"
        position += 1


def _past_string(text: str, start: int) -> int:
    quote = text[start]
    mark = quote * 3 if text.startswith(quote * 3, start) else quote
    position = start + len(mark)
    while position < len(text) and not text.startswith(mark, position):
        position += 2 if quote == '"' and text[position] == "\\" else 1
    end = position + len(mark)
    # Up to two quotes may stand right before the closing three.
    while len(mark) == 3 and text.startswith(quote, end):
        end += 1
    return end


def _keys(statement: str) -> list[str]:
    """The dotted key that the statement begins with."""
    keys: list[str] = []
    bare, position = "", 0
    while position < len(statement) and statement[position] not in "=]#":
        character = statement[position]
        if character in "\"'":
            end = _past_string(statement, position)
            bare += statement[position + 1 : end - 1]
            position = end
            continue
        if character == ".":
            keys.append(bare)
            bare = ""
        elif character not in " \t":
            bare += character
        position += 1
    return [*keys, bare]
