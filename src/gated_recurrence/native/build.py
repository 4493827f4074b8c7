"""CUDA sources to cubins, with nvcc and nothing else; kept in a folder of the user's cache."""

from __future__ import annotations

import hashlib
import logging
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterable
from pathlib import Path

from gated_recurrence.native.kernels import GATE_HEADS, SHARED, SOURCES, THREADS_PREPARE

log = logging.getLogger("gated_recurrence")

FOLDER = Path(__file__).parent / "sm90"
# The `a` is what admits wgmma; the shorthand -arch=sm_90a would also compile for plain sm_90.
FLAGS = (
    "-std=c++17",
    "-O3",
    "-gencode=arch=compute_90a,code=sm_90a",
    "-cubin",
    *(f"-DSHARED_{name}={size}" for name, size in SHARED.items()),
    f"-DTHREADS_PREPARE={THREADS_PREPARE}",
    f"-DGATE_HEADS={GATE_HEADS}",
)

# The schedule for compute capability 10.0, which no call takes yet: compiled and inspected, not run.
BLACKWELL = Path(__file__).parent / "sm100"
BLACKWELL_SOURCES = ("gdn_scans", "simple_scans")
BLACKWELL_FLAGS = (
    *("-std=c++17", "-O3", "-gencode=arch=compute_100a,code=sm_100a"),
    f"-DSHARED_SCANS={212 * 1024}",
)


class NoCompiler(RuntimeError):
    """There is no nvcc, and no earlier build in the cache."""


def compiler() -> str | None:
    """nvcc of CUDA_HOME, of the path, or of the usual place."""
    home = os.environ.get("CUDA_HOME")
    places = [str(Path(home) / "bin" / "nvcc")] if home else []
    for place in (*places, "nvcc", "/usr/local/cuda/bin/nvcc"):
        found = shutil.which(place)
        if found:
            return found
    return None


def cache_key(files: Iterable[Path], flags: tuple[str, ...]) -> str:
    """A digest of the names and contents of the sources, and the flags."""
    digest = hashlib.sha256("\0".join(flags).encode())
    for file in sorted(files):
        body = file.read_bytes()
        digest.update(f"\0{file.name}\0{len(body)}\0".encode())
        digest.update(body)
    return digest.hexdigest()[:20]


def cache_folder() -> Path:
    """Where this version's cubins are kept; `GATED_RECURRENCE_CACHE` names another parent."""
    base = os.environ.get("GATED_RECURRENCE_CACHE")
    parent = Path(base) if base else Path.home() / ".cache" / "gated_recurrence"
    return parent / cache_key(FOLDER.iterdir(), FLAGS)


def cubins() -> dict[str, Path]:
    """Every source's cubin, compiled now where the cache has none.

    Raises:
        NoCompiler: nothing to compile with.
        RuntimeError: nvcc refused a source; its words follow.
    """
    folder = cache_folder()
    found = {source: folder / f"{source}.cubin" for source in SOURCES}
    missing = [source for source, path in found.items() if not path.exists()]
    if not missing:
        return found
    nvcc = compiler()
    if nvcc is None:
        raise NoCompiler("no nvcc in CUDA_HOME, on the path or in /usr/local/cuda")
    began = time.perf_counter()
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder) as scratch:
        running = {
            source: subprocess.Popen(
                [nvcc, *FLAGS, "-o", f"{scratch}/{source}.cubin", str(FOLDER / f"{source}.cu")],
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
            )
            for source in missing
        }
        for source, process in running.items():
            words, _ = process.communicate()
            if process.returncode:
                raise RuntimeError(f"nvcc refused {source}.cu:\n{words}")
        for source in missing:  # a rename is whole or not at all, whoever else is building
            os.replace(f"{scratch}/{source}.cubin", found[source])
    log.info("compiled %s in %.1f s", ", ".join(missing), time.perf_counter() - began)
    return found
