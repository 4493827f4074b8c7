"""Reading source files, with messages a person can act on."""

from __future__ import annotations

import ast
from pathlib import Path

from adjudge.errors import UsageError


def read(path: Path) -> str:
    """The text of a source file.

    Raises:
        UsageError: it is missing, a folder, empty, or not text.
    """
    try:
        # Some editors begin a text with a byte-order mark, which is none of it.
        text = path.read_text(encoding="utf-8-sig")
    except FileNotFoundError:
        raise UsageError("there is no such file", where=str(path)) from None
    except IsADirectoryError:
        raise UsageError("this is a folder, not a file", where=str(path)) from None
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"cannot be read as text: {error}", where=str(path)) from error
    if not text.strip():
        raise UsageError("the file is empty", where=str(path))
    return text


def parsed(source: str, where: str) -> ast.Module:
    """The syntax tree.

    Raises:
        UsageError: it does not parse; the message names the line.
    """
    try:
        return ast.parse(source)
    except (RecursionError, MemoryError):
        raise UsageError("does not parse: it nests too deep", where=where) from None
    except (SyntaxError, ValueError) as error:
        line = getattr(error, "lineno", None)
        message = getattr(error, "msg", None) or str(error)
        at = f"{where}:{line}" if line else where
        raise UsageError(f"does not parse: {message}", where=at) from None


#: Every language, and how a person calls it. Where a source uses several, the first here names it.
LANGUAGES = {
    "tilelang": "TileLang",
    "cute": "CuTe",
    "triton": "Triton",
    "cuda": "CUDA C++",
    "torch": "PyTorch",
}
#: Language -> the package that a source in it imports.
_IMPORTED = {"tilelang": "tilelang", "cute": "cutlass", "triton": "triton"}
#: Package -> the distribution that installs it, where the two differ.
DISTRIBUTIONS = {"cutlass": "nvidia-cutlass-dsl"}


def languages(source: str) -> tuple[str, ...]:
    """What the source seems to be written in, by what it imports: names of LANGUAGES, at least one."""
    imported = _packages(source)
    found = {name for name, package in _IMPORTED.items() if package in imported}
    if "load_inline" in source or "cpp_extension" in source:
        found.add("cuda")
    return tuple(name for name in LANGUAGES if name in found) or ("torch",)


def language(source: str) -> str:
    """The first of `languages`."""
    return languages(source)[0]


def _packages(source: str) -> set[str]:
    """Top-level packages that are imported anywhere; none if it does not parse."""
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return set()
    names: list[str] = []
    for node in ast.walk(tree):
        match node:
            case ast.Import(names=aliases):
                names += [alias.name for alias in aliases]
            case ast.ImportFrom(module=str(module), level=0):
                names.append(module)
            case ast.Call(
                func=ast.Attribute(attr="import_module")
                | ast.Name(id="import_module" | "__import__"),
                args=[ast.Constant(value=str(module)), *_],
            ):
                names.append(module)
    return {name.split(".")[0] for name in names}
