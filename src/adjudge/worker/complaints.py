"""What a compiler, or the interpreter, says of a kernel: its own words, the line it points at, and where
that line stands in the candidate's file.

Triton counts lines from the kernel's `def`, and nvcc in the text that it was handed: neither is the line
that the reader has before him, so the line's text is looked for in his file.
"""

from __future__ import annotations

import ast
import re
import traceback
from collections.abc import Iterator
from typing import Any

#: Characters kept of one complaint: a message of Triton's has up to 500, a line of code 100.
LONGEST = 1_500
#: Errors of a C++ compiler that are told: the ones behind the first few follow from them.
ERRORS = 3
#: How torch begins what it says of an extension that does not compile.
UNBUILT = "Error building extension"

#: "/tmp/x/cuda.cu(7): error: words" (nvcc), "main.cpp:5:10: error: words" (the host's compiler).
_ERROR = re.compile(
    r"^.*?(?:\((?P<at>\d+)\)|:(?P<line>\d+):\d+): "
    r"(?:fatal |catastrophic )?error:? ?(?:#\S+: )?(?P<words>.*)$"
)
#: The host's compiler numbers the lines that it quotes.
_NUMBERED = re.compile(r"^\s*\d+ \| ")
_KERNEL = re.compile(r"__global__[^;{}]*?\b(\w+)\s*\(")
_WORD = re.compile(r"\bdef\s+(\w+)")


def refused(error: BaseException) -> Any:
    """The innermost complaint of Triton's compiler in a chain of causes; None if it has none."""
    return next((e for e in reversed(list(_causes(error))) if _is_complaint(e)), None)


def words_of(error: BaseException, text: str, path: str) -> str:
    """The whole complaint in one sentence, with the kernel's name and the line of the candidate's file;
    "" for an error that is neither a compiler's nor raised inside a kernel.

    Args:
        text: the candidate's source.
        path: the file that it was loaded from.
    """
    complaint = refused(error)
    if complaint is not None:
        return of_triton(complaint, text)
    root = list(_causes(error))[-1]
    if str(root).startswith(UNBUILT):
        return of_cpp(str(root), text)
    if type(error).__name__ == "InterpreterError":
        frames = [f for f in traceback.extract_tb(root.__traceback__) if f.filename == path]
        if frames and frames[-1].lineno:
            said = str(root) or type(root).__name__
            return _sentence(
                said, frames[-1].name, frames[-1].lineno, _line(text, frames[-1].lineno)
            )
    return ""


def of_triton(complaint: Any, text: str) -> str:
    """A complaint of Triton's compiler (`refused`) in one sentence."""
    lines = str(complaint.src or "").splitlines()
    number = int(getattr(complaint.node, "lineno", 0))
    code = lines[number - 1].strip() if 0 < number <= len(lines) else ""
    named = _WORD.search(str(complaint.src or ""))
    name = named[1] if named else ""
    said = str(complaint.error_message or complaint.__cause__ or type(complaint).__name__)
    return _sentence(said, name, _line_of(text, name, number, code), code)


def of_cpp(said: str, text: str, given: str = "") -> str:
    """The first errors among what a C++ compiler says, in one sentence each; "" if it names none.
    Arguments as of `errors`."""
    return "; ".join(_sentence(*parts) for parts in errors(said, text, given)[:ERRORS])[:LONGEST]


def errors(said: str, text: str, given: str = "") -> list[tuple[str, str, int, str]]:
    """(words, kernel, line of the candidate's file, line of code) of each error. The line is 0 where
    the quoted code stands nowhere in the file, or at several places.

    Args:
        text: the candidate's source.
        given: the text that the compiler had, cut out of it; "" if that is not known.
    """
    lines = said.splitlines()
    own, cut = _codes(text), _codes(given)
    found = []
    for number, line in enumerate(lines):
        match = _ERROR.match(line.strip())
        if match is None:
            continue
        quoted = _NUMBERED.sub("", lines[number + 1]) if number + 1 < len(lines) else ""
        code = "" if _ERROR.match(quoted.strip()) else _code(quoted)
        at = int(match["at"] or match["line"])
        known = 0 < at <= len(cut) and cut[at - 1] == code
        place = _found(own, cut[:at] if known else [code])
        kernels = _KERNEL.findall("\n".join(text.splitlines()[:place]))
        if place and code and not re.search(r"\w", code):
            # A bracket tells nothing: what is missing is missing before it.
            before = next((c for c in reversed(own[: place - 1]) if c), "")
            code = f"{before} {code}"
        found.append((match["words"], kernels[-1] if kernels else "", place, code))
    return found


def _codes(text: str) -> list[str]:
    return [_code(line) for line in text.splitlines()]


def _code(line: str) -> str:
    """A line without comment and space around it."""
    return line.partition("//")[0].strip()


def _found(own: list[str], cut: list[str]) -> int:
    """The number of the one line in `own` that is the last of `cut`, told by those before it where there
    are several; 0 if that does not tell."""
    cut = [code for code in cut if code]
    kept = [(code, number) for number, code in enumerate(own, 1) if code]
    for context in range(1, len(cut) + 1):
        wanted = cut[-context:]
        places = [
            kept[end - 1][1]
            for end in range(context, len(kept) + 1)
            if kept[end - 1][0] == wanted[-1]
            and [code for code, _ in kept[end - context : end]] == wanted
        ]
        if len(places) < 2:
            return places[0] if places else 0
    return 0


def _causes(error: BaseException) -> Iterator[BaseException]:
    """The error and what caused it, the innermost last."""
    seen: set[int] = set()
    while id(error) not in seen:
        seen.add(id(error))
        yield error
        if error.__cause__ is None:
            return
        error = error.__cause__


def _is_complaint(error: BaseException) -> bool:
    return all(hasattr(error, name) for name in ("src", "node", "error_message"))


def _sentence(said: str, kernel: str, line: int, code: str) -> str:
    """ "words (kernel k, line 7: `code`)", whole words only."""
    words = " ".join(said.split())
    if len(words) > LONGEST // 2:
        words = words[: LONGEST // 2].rpartition(" ")[0] + " …"
    where = [f"kernel {kernel}"] if kernel else []
    where += [f"line {line}"] if line else []
    place = ", ".join(where) + (f": `{code[:200]}`" if code else "")
    return f"{words} ({place.removeprefix(': ')})" if place else words


def _line_of(text: str, name: str, number: int, code: str) -> int:
    """The line of the file of the `number`-th line of a function; 0 where the two texts differ."""
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return 0
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef) and node.name == name:
            line = node.lineno + number - 1
            if code and _line(text, line) == code:
                return line
    return 0


def _line(text: str, number: int) -> str:
    lines = text.splitlines()
    return lines[number - 1].strip() if 0 < number <= len(lines) else ""
