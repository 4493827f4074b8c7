"""What this machine can do: versions, the compiler Triton needs, and the layers of the sandbox."""

from __future__ import annotations

import platform
import shutil
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import metadata


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    name: str
    ok: bool
    words: str
    #: False for what only widens what can be judged.
    needed: bool = True


def examine() -> Iterator[Check]:
    """All checks; the last ones start a worker."""
    yield Check(
        name="python",
        ok=sys.version_info >= (3, 11),
        words=f"{platform.python_version()} on {platform.system()} {platform.machine()}",
    )
    for package in ("torch", "numpy", "triton"):
        yield _package(package)
    compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    words = compiler or "none found; torch.compile controls cannot run"
    yield Check(name="C compiler", ok=compiler is not None, words=words, needed=False)
    yield from _worker()
    yield _gpu()
    yield _disassembler()
    yield _cuda_compiler()


def _gpu() -> Check:
    from adjudge.worker.cuda import find_device

    found = find_device()
    name = found.name if found is not None else ""
    words = f"{name}, for --runner cuda" if name else "none; the interpreter judges all the same"
    return Check(name="GPU", ok=bool(name), words=words, needed=False)


def _disassembler() -> Check:
    from adjudge.static.compiler import tool

    try:
        words = f"{tool('nvdisasm')}, for inspect"
    except FileNotFoundError:
        words = "none; `adjudge inspect` shows hints only"
        return Check(name="disassembler", ok=False, words=words, needed=False)
    return Check(name="disassembler", ok=True, words=words, needed=False)


def _cuda_compiler() -> Check:
    from adjudge.static.nvcc import find

    found = find()
    words = f"{found}, for inspect" if found is not None else _WITHOUT_NVCC
    return Check(name="nvcc", ok=found is not None, words=words, needed=False)


_WITHOUT_NVCC = (
    "none; `adjudge inspect` does not compile CUDA C++ (a CUDA toolkit, or pip install nvidia-cuda-nvcc "
    "nvidia-cuda-crt nvidia-nvvm nvidia-cuda-runtime nvidia-cuda-cccl, and a C++ compiler)"
)


def _package(name: str) -> Check:
    try:
        version = metadata.version(name)
    except metadata.PackageNotFoundError:
        words = "not installed; Triton kernels cannot be judged (pip install 'adjudge[triton]')"
        return Check(name=name, ok=False, words=words, needed=name != "triton")
    if name == "numpy" and tuple(map(int, version.split(".")[:2])) >= (2, 4):
        words = f"{version}; Triton's interpreter breaks on 2.4 and later (pip install 'numpy<2.4')"
        return Check(name=name, ok=False, words=words)
    return Check(name=name, ok=True, words=version)


def _worker() -> Iterator[Check]:
    from adjudge.errors import HarnessError
    from adjudge.task import Candidate
    from adjudge.worker.client import Zygote

    try:
        with Zygote.start() as zygote:
            layers = zygote.layers
            worker = zygote.spawn()
            source = "class ModelNew:\n    pass\n"
            reply = worker.load(Candidate(name="probe", source=source, entry="ModelNew"))
            worker.close()
    except HarnessError as error:
        yield Check(name="worker", ok=False, words=str(error))
        return
    loaded = reply.observation is None
    words = "starts and loads a candidate" if loaded else f"fails: {reply.observation}"
    yield Check(name="worker", ok=loaded, words=words)
    words = ", ".join(layers) if layers else "NO LAYER holds here: judge only code that you trust"
    yield Check(name="sandbox", ok=bool(layers), words=words)
    yield from _proofs(layers)


def _proofs(layers: tuple[str, ...]) -> Iterator[Check]:
    """Each layer that is there, by an attempt to break it."""
    from adjudge.worker.sandbox import prove

    for proof in prove():
        if proof.layer in layers:
            refused = "cannot" if proof.held else "CAN"
            words = f"a candidate {refused} {proof.detail}"
            yield Check(name=proof.layer, ok=proof.held, words=words)
