"""The process that compiles: kernels to machine code, for chips that need not be there.

    python -m adjudge.static.compiler FOLDER ISOLATION

Reads FOLDER/jobs.json and writes FOLDER/0.json, 1.json, ... as they are done. The text that it compiles
is the candidate's, so it restricts itself before it reads any: nothing outside FOLDER can be written.
The interpreter replaces parts of Triton that compilation needs, which is why no worker does this.
"""

from __future__ import annotations

import builtins
import contextlib
import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from types import ModuleType
from typing import Any

from adjudge.static import nvcc
from adjudge.worker import complaints, sandbox

#: Characters kept of what a compiler says.
WORDS = 2_000
#: Characters of disassembly that are read at most.
LONGEST = 32 << 20


def main(arguments: list[str]) -> None:
    folder, isolation = Path(arguments[0]), arguments[1]
    os.environ["TRITON_CACHE_DIR"] = os.environ["TMPDIR"] = os.environ["HOME"] = str(folder)
    tempfile.tempdir = str(folder)
    os.chdir(folder)
    with contextlib.suppress(ImportError):
        import triton  # noqa: F401

    sandbox.die_with_parent()
    if isolation == "full" and sandbox.enter_namespaces():
        # The first child is the new namespace's init: none can be started after it has ended.
        child = os.fork()
        if child:
            sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) != 0)
        sandbox.die_with_parent()
    sandbox.restrict(sandbox.Settings(isolation=isolation, compiler=True), [folder])
    for number, job in enumerate(json.loads((folder / "jobs.json").read_text())):
        try:
            make = nvcc.compiled if "nvcc" in job else _compiled
            done = make(job, folder, number)
        except Exception as error:
            done = {"error": _said(error, job.get("text", "")), "refused": _is_refused(error)}
        partial = folder / f"{number}.partial"
        partial.write_text(json.dumps(done))
        partial.rename(folder / f"{number}.json")


def _compiled(job: dict[str, Any], folder: Path, number: int) -> dict[str, Any]:
    import triton
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    function = getattr(_module(job["text"], folder), job["kernel"])
    signature, constants, attributes = _signature(job["parameters"])
    source = ASTSource(function, signature, constants, attributes)
    target = GPUTarget("cuda", job["capability"], 32)
    if job["only_read"]:
        _read_by_triton(source, target, dict(job["options"]))
        return {"read": True}
    made = triton.compile(source, target=target, options=dict(job["options"]))
    cubin = folder / f"{number}.cubin"
    cubin.write_bytes(made.asm["cubin"])
    return {
        "shared": int(made.metadata.shared),
        "tensor_memory": int(getattr(made.metadata, "tmem_size", None) or 0),
        "usage": printed("cuobjdump", "-res-usage", str(cubin)),
        # cuobjdump -sass would do, but crashes in a process namespace of its own.
        "sass": printed("nvdisasm", "-c", str(cubin))[:LONGEST],
    }


def _read_by_triton(source: Any, target: Any, given: dict[str, Any]) -> None:
    """The compiler's first stage, which is where it refuses a kernel's Python: as `triton.compile`
    begins, and without what takes its time."""
    from triton._C.libtriton import ir
    from triton.compiler.compiler import make_backend

    backend = make_backend(target)
    options = backend.parse_options({**given, **source.parse_options()})
    context = ir.context()
    ir.load_dialects(context)
    backend.load_dialects(context)
    functions = backend.get_codegen_implementation(options)
    source.make_ir(target, options, functions, backend.get_module_map(), context)


def _module(text: str, folder: Path) -> ModuleType:
    name = f"kernel_{abs(hash(text))}"
    if name in sys.modules:
        return sys.modules[name]
    path = folder / f"{name}.py"
    path.write_text(text)
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    sys.modules[name] = module
    return module


def _signature(
    parameters: list[tuple[str, str]],
) -> tuple[dict[str, str], dict[str, Any], dict[tuple[int], list[list[Any]]]]:
    """Triton's types, constants and alignments from the record of a launch (`Launch.parameters`)."""
    import ast

    import triton.language as tl

    signature: dict[str, str] = {}
    constants: dict[str, Any] = {}
    attributes: dict[tuple[int], list[list[Any]]] = {}
    for position, (name, kind) in enumerate(parameters):
        if kind == "?":
            raise TypeError(f"parameter {name} was given something that has no name as a type")
        if kind.startswith("="):
            signature[name] = "constexpr"
            word, _, dtype = kind[1:].partition(" ")
            constants[name] = tl.dtype(dtype) if word == "dtype" else ast.literal_eval(kind[1:])
            continue
        signature[name], _, divisor = kind.partition(":")
        if divisor:
            attributes[(position,)] = [["tt.divisibility", int(divisor)]]
    return signature, constants, attributes


def tool(name: str, *, beside: Path | None = None) -> str:
    """Path of a CUDA binary tool: the one in the folder `beside`, the one that comes with Triton, or
    one on the path.

    Raises:
        FileNotFoundError: there is none.
    """
    folders = [] if beside is None else [beside]
    triton = importlib.util.find_spec("triton")
    if triton is not None and triton.origin is not None:
        folders.append(Path(triton.origin).parent / "backends" / "nvidia" / "bin")
    places = (str(folder / name) for folder in folders if os.access(folder / name, os.X_OK))
    found = next(places, None) or shutil.which(name)
    if found is None:
        raise FileNotFoundError(f"{name} comes neither with this Triton nor with the system")
    return found


def printed(name: str, *arguments: str, beside: Path | None = None) -> str:
    """What the tool prints."""
    done = subprocess.run(
        [tool(name, beside=beside), *arguments],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    if done.returncode:
        words = (done.stderr or done.stdout).strip()
        raise RuntimeError(f"{name} ended with code {done.returncode}: {words}")
    return done.stdout


def _is_refused(error: BaseException) -> str:
    """What Triton's own compiler calls its refusal of a kernel; "" for every other error. A name that is
    not defined may be one that was cut away, unless it is one of Python's own."""
    complaint = complaints.refused(error)
    if complaint is None:
        return ""
    unknown = re.search(r"(\w+) is not defined", str(complaint.error_message))
    if unknown is not None and not hasattr(builtins, unknown[1]):
        return ""
    return type(complaint).__name__


def _said(error: BaseException, text: str) -> str:
    """The innermost complaint: Triton wraps it in the call sites that led there."""
    complaint = complaints.refused(error)
    if complaint is not None:
        return f"{type(complaint).__name__}: {complaints.of_triton(complaint, text)}"[:WORDS]
    while error.__cause__ is not None:
        error = error.__cause__
    words = str(error).strip()
    return f"{type(error).__name__}: {words}"[:WORDS] if words else type(error).__name__


if __name__ == "__main__":
    main(sys.argv[1:])
