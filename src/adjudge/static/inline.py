"""CUDA C++ inside a candidate's Python: the sources it hands to `load_inline`, read and not run."""

from __future__ import annotations

import ast
from dataclasses import dataclass

from adjudge.static.source import Source

_INLINE = "load_inline"
#: Position of `cuda_sources` among its arguments: name, cpp_sources, cuda_sources.
_POSITION = 2
#: Compiler flags that change the machine code and nothing else; the rest of a candidate's is left out.
_FLAGS = (
    "-O", "--optimize", "-use_fast_math", "--use_fast_math", "-ftz", "--ftz", "-prec-", "--prec-",
    "-fmad", "--fmad", "-maxrregcount", "--maxrregcount", "-D", "-U", "-std=", "--std=",
    "--expt-", "-expt-", "--extended-lambda", "-extended-lambda",
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class CudaSource:
    """One extension's CUDA C++."""

    text: str
    #: Flags for the compiler, as the candidate gives them.
    flags: tuple[str, ...]
    #: Line of the call in the candidate's file.
    line: int


def inline_sources(source: Source) -> tuple[tuple[CudaSource, ...], tuple[str, ...]]:
    """The sources that constants give, and what could not be read, in words with line numbers."""
    found, unread = [], []
    for node in ast.walk(source.tree):
        if not isinstance(node, ast.Call) or not _is_inline(source, node.func):
            continue
        given = {keyword.arg: keyword.value for keyword in node.keywords}
        value = given.get("cuda_sources")
        if value is None and len(node.args) > _POSITION:
            value = node.args[_POSITION]
        if value is None:
            continue
        parts = [source.names.text(part) for part in _elements(source, value)]
        known = [part for part in parts if part is not None]
        if len(known) < len(parts):
            unread.append(f"line {node.lineno}: cuda_sources is put together at run time")
        elif known:
            flags = _elements(source, given["extra_cuda_cflags"]) if _FLAG_NAME in given else []
            text = "\n".join(known)
            found.append(CudaSource(text=text, flags=_kept(source, flags), line=node.lineno))
    return tuple(found), tuple(unread)


_FLAG_NAME = "extra_cuda_cflags"


def _is_inline(source: Source, function: ast.expr) -> bool:
    match function:
        case ast.Name(id=name) | ast.Attribute(attr=name) if name == _INLINE:
            return True
    return any(path.endswith(f".{_INLINE}") for path in source.names.paths(function))


def _elements(source: Source, value: ast.expr) -> list[ast.expr]:
    """The elements of a list that is written out, or bound to a name once; else the value itself."""
    match value:
        case ast.List(elts=elements) | ast.Tuple(elts=elements):
            return list(elements)
        case ast.Name(id=name):
            bound = source.assigned.get(name, [])
            if len(bound) == 1 and isinstance(bound[0], (ast.List, ast.Tuple)):
                return list(bound[0].elts)
    return [value]


def _kept(source: Source, flags: list[ast.expr]) -> tuple[str, ...]:
    texts = (source.names.text(flag) for flag in flags)
    return tuple(t for t in texts if t is not None and t.startswith(_FLAGS) and " " not in t)
