"""CUDA C++ to machine code, with the compiler where it is installed and no torch headers anywhere."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

#: What the compiler is told for each chip: the code of the chip itself, all of its instructions.
ARCHITECTURES = {80: "sm_80", 90: "sm_90a", 100: "sm_100a"}
#: As torch's own `load_inline` compiles, so far as it matters to what runs on the device.
FLAGS = (
    "-std=c++17", "--expt-relaxed-constexpr", "-D__CUDA_NO_HALF_OPERATORS__",
    "-D__CUDA_NO_HALF_CONVERSIONS__", "-D__CUDA_NO_BFLOAT16_CONVERSIONS__",
    "-D__CUDA_NO_HALF2_OPERATORS__",
)  # fmt: skip
#: Seconds for one source: the largest of a corpus of 1,131 take a few.
SECONDS = 50
#: Errors that are kept.
_LINES = 4
#: How the assembler begins an error, in a file that nobody has, or of a whole kernel (that something is
#: unresolved may be for want of what was cut away); and what only counts errors.
_PTXAS = re.compile(
    r"^ptxas (?:\S+, line \d+; error\s*:|error\s*:(?= Entry function '\S+' uses too much shared data))"
)
_COUNTED = re.compile(r"\d+ errors? detected in|ptxas fatal\s*: Ptx assembly aborted")
#: What stands under the line of code that an error quotes.
_CARET = re.compile(r"(?:\|\s*)?[~^]")
#: Errors of grammar: what is cut away of a file makes names unknown, and breaks no sentence.
_GRAMMAR = re.compile(r"expected an? |unrecognized token|missing closing quote|invalid character")
_MACRO = re.compile(r"\b([A-Z][A-Z0-9]*_[A-Z0-9_]*)\s*\(")

_SECTION = re.compile(r"^//-+ +\.text\.(\S+) +-+$", re.MULTILINE)
_USED = re.compile(r"Function (\S+):\s*\n\s*(REG:[^\n]*)")
_SPILLED = re.compile(
    r"Function properties for (\S+)\s*\n\s*\d+ bytes stack frame, (\d+) bytes spill stores, "
    r"(\d+) bytes spill loads"
)


class Refused(Exception):
    """The compiler takes no part of a source."""


def find() -> Path | None:
    """The compiler: of the toolkit that the environment names, of the path, or of NVIDIA's wheels."""
    for variable in ("CUDA_HOME", "CUDA_PATH"):
        if (
            variable in os.environ
            and (found := Path(os.environ[variable], "bin", "nvcc")).is_file()
        ):
            return found
    on_path = shutil.which("nvcc")
    if on_path is not None:
        return Path(on_path)
    folders = (Path(entry, "nvidia") for entry in sys.path if entry)
    # A wheel's file is executable only where the installer kept its mode.
    wheels = (p for f in folders for p in sorted(f.glob("*/bin/nvcc")) if os.access(p, os.X_OK))
    return next(wheels, None)


def compiled(job: dict[str, Any], folder: Path, number: int) -> dict[str, Any]:
    """Each kernel of one source on one chip: {"kernels": [{"symbol", "usage", "sass", "spilled"}]}.

    Raises:
        Refused: the compiler refuses, with its words.
    """
    from adjudge.static.compiler import LONGEST, printed

    nvcc = Path(job["nvcc"])
    text, cubin = folder / f"{number}.cu", folder / f"{number}.cubin"
    text.write_text(job["text"])
    command: list[str | Path] = [
        nvcc,
        "-cubin",
        f"-arch={ARCHITECTURES[job['capability']]}",
        "-w",
        "-Xptxas",
        "-v",
    ]
    command += [*FLAGS, *job["flags"], "-o", cubin, text]
    done = subprocess.run(
        command, capture_output=True, text=True, errors="replace", timeout=SECONDS, check=False
    )
    if done.returncode or not cubin.is_file():
        raise Refused(complaint(done.stderr + done.stdout, str(text)))
    beside = nvcc.parent
    usage = dict(_USED.findall(printed("cuobjdump", "-res-usage", str(cubin), beside=beside)))
    listing = printed("nvdisasm", "-c", str(cubin), beside=beside)[:LONGEST]
    spilled = {name: int(a) + int(b) for name, a, b in _SPILLED.findall(done.stderr)}
    return {
        "kernels": [
            {"symbol": n, "usage": usage[n], "sass": part, "spilled": spilled.get(n, 0)}
            for n, part in sections(listing)
            if n in usage
        ]
    }


def sections(listing: str) -> Iterator[tuple[str, str]]:
    """The functions of a disassembly: symbol, text."""
    parts = _SECTION.split(listing)
    yield from zip(parts[1::2], parts[2::2], strict=True)


def complaint(words: str, file: str = "") -> str:
    """The first errors among what a compiler says, each with the line of code that it quotes, without
    the name of the file that it was given."""
    lines = [_PTXAS.sub("ptxas: error:", line.strip()) for line in words.splitlines()]
    lines = [line for line in lines if line and not _COUNTED.match(line)]
    at = [n for n, line in enumerate(lines) if re.search(r"\b(?:error|fatal)\b", line)][:_LINES]
    quoted = [n + 1 for n in at if n + 2 < len(lines) and _CARET.match(lines[n + 2])]
    errors = [lines[n] for n in sorted({*at, *quoted})] or lines[-_LINES:]
    if not errors:
        return "nvcc: ended without a word"
    kept = "\n".join(errors)
    return kept.replace(file, "the device code") if file else kept


def breaks_grammar(words: str, text: str) -> bool:
    """Whether an error is one of grammar that the source itself makes: not where a macro is used that it
    does not define, which may stand for anything."""
    defined = set(re.findall(r"#\s*define\s+(\w+)", text))
    return _GRAMMAR.match(words) is not None and set(_MACRO.findall(text)) <= defined


def readable(symbol: str, kernels: tuple[str, ...]) -> str:
    """The name in the source of a mangled symbol; the symbol itself where none fits."""
    fitting = [name for name in kernels if f"{len(name)}{name}" in symbol or name == symbol]
    return max(fitting, key=len, default=symbol)
