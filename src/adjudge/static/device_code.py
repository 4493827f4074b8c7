"""The part of a CUDA C++ file that runs on the device, cut out of it.

What runs on the host needs torch's headers, which take minutes to compile and need not be there. The
cut is made by the text's own structure, braces and keywords at the top level, without understanding
C++: what is cut wrongly does not compile, and is reported as such.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

#: Pieces of a C++ text. The order matters: comments and strings hide what is inside them.
_PIECE = re.compile(
    r"""
    (?P<comment>//[^\n]*|/\*.*?\*/)
  | (?P<directive>^[ \t]*\#(?:[^\n\\]|\\.|\\\n)*)
  | (?P<raw>R"(?P<mark>[^\s()\\]{0,16})\(.*?\)(?P=mark)")
  | (?P<text>"(?:[^"\\\n]|\\.)*"|'(?:[^'\\\n]|\\.)*')
  | (?P<word>[A-Za-z_]\w*)
  | (?P<space>\s+)
  | (?P<other>.)
    """,
    re.DOTALL | re.MULTILINE | re.VERBOSE,
)
_DEVICE = frozenset({"__global__", "__device__", "__constant__", "__managed__"})
#: Words that make a declaration worth keeping though it names no device.
_NEUTRAL = frozenset(
    {"using", "typedef", "constexpr", "const", "static_assert", "enum", "struct", "class", "union",
     "namespace", "concept"}
)  # fmt: skip
_TYPES = frozenset({"struct", "class", "union", "enum"})
#: Words of the libraries that only host code uses.
_HOST = frozenset({"torch", "at", "c10", "pybind11", "py", "std"})
_HOST_HEADERS = re.compile(
    r"#\s*include\s*[<\"](?:torch|ATen|c10|pybind11|Python|cublas|cudnn|cusparse|nccl)"
)
_INCLUDE = re.compile(r"#\s*include\s*([<\"][^>\"\n]+[>\"])")

#: What torch/extension.h brings along that device code relies on.
PROLOGUE = """\
#include <cuda_runtime.h>
#include <cuda_fp16.h>
#include <cuda_bf16.h>
#include <algorithm>
#include <cfloat>
#include <climits>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <limits>
#include <type_traits>
#define C10_RESTRICT __restrict__
#define C10_HOST_DEVICE __host__ __device__
#define C10_DEVICE __device__
#define TORCH_CHECK(...)
"""


@dataclass(frozen=True, slots=True)
class DeviceCode:
    text: str
    #: Names of the kernels, in their order.
    kernels: tuple[str, ...]
    #: What had to be assumed.
    notes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _Piece:
    kind: str
    text: str


@dataclass(frozen=True, slots=True)
class _Item:
    """One declaration at some level: what stands before its braces, and what is inside."""

    head: tuple[_Piece, ...]
    #: None for a declaration that ends without braces.
    body: tuple[_Piece, ...] | None
    tail: tuple[_Piece, ...] = ()

    @property
    def words(self) -> list[str]:
        return [piece.text for piece in self.head if piece.kind == "word"]


def device_code(text: str) -> DeviceCode:
    """What of the file is compiled for the device, and an instance of each template that is launched."""
    pieces = [
        _Piece(match.lastgroup or "other", match[0])
        for match in _PIECE.finditer(text)
        if match.lastgroup != "mark"
    ]
    pieces = [_Piece(" ", " ") if p.kind == "comment" else p for p in pieces]
    pieces = [
        _Piece("raw", p.text) if p.kind == "other" and p.text.startswith('R"') else p
        for p in pieces
    ]
    kernels: dict[str, bool] = {}
    kept = "".join(map(_written, _kept(_items(pieces), kernels)))
    host = "".join(p.text for p in pieces if p.kind != "directive")
    instances, notes = _instances(host, [n for n, template in kernels.items() if template])
    table = "".join(f"    (void*){instance},\n" for instance in instances)
    launched = f"\nstatic void* const adjudge_launched[] = {{\n{table}}};\n" if table else ""
    return DeviceCode(PROLOGUE + kept + launched, tuple(kernels), notes)


def bare(text: str) -> str:
    """The text without comments, and with nothing in its strings."""
    hidden = {"comment": " ", "text": '""'}
    return "".join(hidden.get(m.lastgroup or "", m[0]) for m in _PIECE.finditer(text))


def _items(pieces: list[_Piece]) -> Iterator[_Item | _Piece]:
    """Declarations and preprocessor lines, in their order."""
    head: list[_Piece] = []
    place = 0
    round_depth = 0
    while place < len(pieces):
        piece = pieces[place]
        if piece.kind == "directive" and round_depth == 0:
            # A line between the words of a declaration stays where it is.
            if any(p.kind == "word" for p in head):
                head.append(_Piece("directive", f"\n{piece.text.strip()}\n"))
            else:
                yield piece
            place += 1
            continue
        if piece.text in "([":
            round_depth += 1
        elif piece.text in ")]":
            round_depth -= 1
        if piece.text == "{" and round_depth <= 0:
            end = _closing(pieces, place)
            body = tuple(pieces[place + 1 : end])
            place = end + 1
            item = _Item(tuple(head), body)
            if _ends_with_semicolon(item):
                stop = place
                while stop < len(pieces) and pieces[stop].text != ";":
                    stop = _closing(pieces, stop) if pieces[stop].text == "{" else stop
                    stop += 1
                item = _Item(tuple(head), body, tuple(pieces[place : stop + 1]))
                place = stop + 1
            yield item
            head, round_depth = [], 0
            continue
        head.append(piece)
        place += 1
        if piece.text == ";" and round_depth <= 0:
            yield _Item(tuple(head), None)
            head, round_depth = [], 0


def _closing(pieces: list[_Piece], place: int) -> int:
    """Where the braces that open at `place` close, or the end."""
    depth = 0
    for at in range(place, len(pieces)):
        depth += {"{": 1, "}": -1}.get(pieces[at].text, 0)
        if depth == 0:
            return at
    return len(pieces)


def _ends_with_semicolon(item: _Item) -> bool:
    """Types and initialisers do; functions and namespaces do not."""
    words = item.words
    if "namespace" in words or _is_linkage(item):
        return False
    if _has_initialiser(item):
        return True
    return bool(_TYPES & set(words)) and not _is_function(item)


def _has_initialiser(item: _Item) -> bool:
    depth = 0
    for before, piece in zip((_Piece("", ""), *item.head), item.head, strict=False):
        # A template's parameters have default values of their own.
        depth += {"(": 1, ")": -1, "<": 1, ">": -1}.get(piece.text, 0)
        if piece.text == "=" and depth <= 0 and before.text not in "=!<>":
            return True
    return False


def _is_linkage(item: _Item) -> bool:
    return item.words == ["extern"]


def _is_function(item: _Item) -> bool:
    return any(piece.text == "(" for piece in _without_template(item.head)) and not (
        _has_initialiser(item)
    )


def _without_template(head: tuple[_Piece, ...]) -> tuple[_Piece, ...]:
    """The head behind `template <...>`."""
    words = [n for n, piece in enumerate(head) if piece.text == "template"]
    place = words[-1] if words else -1
    if place < 0:
        return head
    depth = 0
    for at in range(place + 1, len(head)):
        depth += {"<": 1, ">": -1}.get(head[at].text, 0)
        if depth == 0 and head[at].text == ">":
            return head[at + 1 :]
    return ()


def _kept(items: Iterator[_Item | _Piece], kernels: dict[str, bool]) -> Iterator[_Item | _Piece]:
    """What the device needs. Kernels go into `kernels`: name, whether it is a template."""
    for item in items:
        if isinstance(item, _Piece):
            if not _HOST_HEADERS.match(item.text.strip()):
                yield item
            continue
        words = set(item.words)
        if item.body is not None and "__global__" in words:
            kernels[_name(item)] = "template" in words
        if item.body is not None and ("namespace" in words or _is_linkage(item)):
            inner = tuple(
                _Piece("kept", _written(i)) for i in _kept(_items(list(item.body)), kernels)
            )
            yield _Item(item.head, inner)
        elif words & _DEVICE or (words & _TYPES and not _is_function(item)):
            yield item
        elif item.body is not None and _is_function(item):
            if "constexpr" in words:
                yield item
        elif words & _NEUTRAL and not words & _HOST:
            yield item


def _written(item: _Item | _Piece) -> str:
    if isinstance(item, _Piece):
        include = _INCLUDE.match(item.text.strip())
        if include:
            return f"\n#if __has_include({include[1]})\n{item.text.strip()}\n#endif\n"
        return f"\n{item.text.strip()}\n" if item.kind == "directive" else item.text
    head = "".join(piece.text for piece in item.head)
    if item.body is None:
        return head
    inside = "".join(piece.text for piece in item.body)
    return head + "{" + inside + "}" + "".join(piece.text for piece in item.tail) + "\n"


def _name(kernel: _Item) -> str:
    """The word before the brackets of the parameters."""
    word, depth = "", 0
    for piece in _without_template(kernel.head):
        if piece.text == "(" and depth == 0 and word != "__launch_bounds__":
            break
        depth += {"(": 1, ")": -1}.get(piece.text, 0)
        if piece.kind == "word" and depth == 0:
            word = piece.text
    return word


def _instances(text: str, templates: list[str]) -> tuple[list[str], tuple[str, ...]]:
    """The instances that the host code launches; what it chooses by the type of tensors is float32."""
    found: dict[str, None] = {}
    notes: dict[str, None] = {}
    for name in templates:
        for arguments in re.findall(rf"\b{name}\s*(<[^;{{}}<>]*>)?\s*<<<", text):
            words = re.sub(r"\b(?:scalar_t|T)\b", "float", arguments)
            if words != arguments:
                notes[f"{name} is read for float32"] = None
            words = re.sub(r"\b[A-Za-z_]\w*", lambda m: _value(text, m[0]), words)
            if not words:
                words = "<float>"
                notes[
                    f"{name} is read for float32: its launch leaves the type to its arguments"
                ] = None
            found[name + words] = None
    return list(found), tuple(notes)


def _value(text: str, word: str) -> str:
    """The number that a host constant of that name is bound to, or the word itself."""
    found = set(re.findall(rf"\b(?:int|unsigned|size_t|auto|bool)\s+{word}\s*=\s*(\w+)\s*;", text))
    return found.pop() if len(found) == 1 else word
