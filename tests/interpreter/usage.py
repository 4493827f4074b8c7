"""Which operations of Triton the kernels of a corpus use.

python tests/interpreter/usage.py CORPUS.jsonl.gz... > tests/interpreter/usage.json

counts the candidates that use each operation inside a kernel, and leaves out what only one uses.
Operations are named as they are written: "tl.sum", "tl.sum axis=" for an argument by keyword, "+", "<",
"and" for operators, ".to" for methods, "min" for Python's own.
"""

from __future__ import annotations

import ast
import gzip
import json
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from adjudge.static.source import Source

_SIGNS = {
    ast.Add: "+", ast.Sub: "-", ast.Mult: "*", ast.Div: "/", ast.FloorDiv: "//", ast.Mod: "%",
    ast.Pow: "**", ast.BitAnd: "&", ast.BitOr: "|", ast.BitXor: "^", ast.LShift: "<<",
    ast.RShift: ">>", ast.MatMult: "@", ast.And: "and", ast.Or: "or", ast.Not: "not",
    ast.Invert: "~", ast.USub: "-x", ast.UAdd: "+x", ast.Lt: "<", ast.LtE: "<=", ast.Gt: ">",
    ast.GtE: ">=", ast.Eq: "==", ast.NotEq: "!=", ast.Is: "is", ast.IsNot: "is not", ast.In: "in",
    ast.NotIn: "not in",
}  # fmt: skip
_LANGUAGE, _LIBDEVICE = "triton.language.", "triton.language.extra."


def used(source: Source) -> set[str]:
    """The operations in all kernels of a file."""
    return {
        name
        for kernel in source.kernels.values()
        for part in kernel.body
        for node in ast.walk(part)
        for name in _named(node, source)
    }


def _named(node: ast.AST, source: Source) -> Iterator[str]:
    match node:
        case ast.BinOp(op=op) | ast.AugAssign(op=op) | ast.UnaryOp(op=op) | ast.BoolOp(op=op):
            yield _SIGNS[type(op)]
        case ast.Compare(ops=ops):
            yield from (_SIGNS[type(op)] for op in ops)
        case ast.Call(func=function, keywords=keywords):
            paths = [p for p in source.names.paths(function) if p.startswith(_LANGUAGE)]
            for name in map(_short, paths):
                yield name
                yield from (f"{name} {keyword.arg}=" for keyword in keywords if keyword.arg)
            match function:
                case ast.Attribute(attr=method) if not paths:
                    yield f".{method}"
                case ast.Name(id=name) if not paths and name not in source.kernels:
                    yield name


def _short(path: str) -> str:
    """ "tl.exp" for triton.language.math.exp too, which is the same function."""
    if path.startswith(_LIBDEVICE):
        return f"libdevice.{path.rpartition('.')[2]}"
    return f"tl.{path.removeprefix(_LANGUAGE).removeprefix('math.')}"


def count(corpora: list[Path]) -> Counter[str]:
    """Operation -> candidates that use it; "unreadable" counts those that are no Python."""
    found: Counter[str] = Counter()
    for corpus in corpora:
        with gzip.open(corpus, "rt") as lines:
            for line in lines:
                try:
                    found.update(used(Source(json.loads(line)["candidate"])))
                except (SyntaxError, ValueError):
                    found["unreadable"] += 1
    return found


if __name__ == "__main__":
    counted = count([Path(name) for name in sys.argv[1:]])
    often = {name: n for name, n in sorted(counted.items()) if n >= 2}
    print(json.dumps(often, indent=1))
