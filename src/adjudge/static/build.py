"""The judge's side of compilation: hands kernels to a process that compiles, and reads what came out."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from adjudge.static import sass
from adjudge.static.chips import Chip
from adjudge.static.compiler import WORDS
from adjudge.static.device_code import DeviceCode
from adjudge.static.inline import CudaSource
from adjudge.static.nvcc import readable
from adjudge.static.sass import MachineCode
from adjudge.task import Launch
from adjudge.worker.launch import child_environment

#: Seconds that one kernel may take on one chip: a large one takes a second.
JOB_SECONDS = 60.0
_MISSING = "there is no machine code of it: a template of which no launch could be read?"
#: Bytes that are read of one result: the disassembly of a large kernel is a few million.
_LARGEST = 64 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """One kernel, as it was launched, for one chip."""

    launch: Launch
    #: A module that defines the kernel (`kernels.standalone`).
    text: str
    chip: Chip
    #: Whether the compiler only reads it: that it takes the kernel's Python is then all that is known.
    only_read: bool = False

    @property
    def title(self) -> tuple[str, str]:
        """The kernel's name, and what its machine code depends on."""
        constants = [f"{n}{k}" for n, k in self.launch.parameters if k.startswith("=")]
        options = [f"{name}={value}" for name, value in self.launch.options]
        return self.launch.kernel, ", ".join([*constants, *options])


@dataclass(frozen=True, slots=True, kw_only=True)
class CudaJob:
    """All kernels of one CUDA C++ source, for one chip."""

    source: CudaSource
    code: DeviceCode
    chip: Chip
    nvcc: Path

    @property
    def title(self) -> tuple[str, str]:
        words = ", ".join([f"CUDA C++ of line {self.source.line}", *self.source.flags])
        return ", ".join(self.code.kernels) or "no kernel", words


@dataclass(frozen=True, slots=True, kw_only=True)
class Built:
    """One kernel on one chip; all kernels of a source that the compiler refused."""

    job: Job | CudaJob
    #: None where the compiler refused, with its words, or only read the kernel.
    code: MachineCode | None
    error: str = ""
    #: What Triton's compiler calls its own refusal; "" where something else went wrong, or nothing.
    refused: str = ""
    #: The kernel's name, where the job has several.
    kernel: str = ""

    @property
    def title(self) -> tuple[str, str]:
        """The kernel's name, and what its machine code depends on."""
        name, words = self.job.title
        return self.kernel or name, words


def build(jobs: Sequence[Job | CudaJob], *, isolation: str = "full") -> tuple[Built, ...]:
    """Compiles each job, in a process that can write nowhere but to a folder of its own. A CUDA C++
    source gives as many results as it has kernels.

    Args:
        isolation: "full" or "none".
    """
    if not jobs:
        return ()
    with tempfile.TemporaryDirectory(prefix="adjudge-") as name:
        folder = Path(name)
        (folder / "jobs.json").write_text(json.dumps([_plain(job) for job in jobs]))
        said = _run(folder, isolation, JOB_SECONDS * len(jobs))
        results = [_result(job, folder / f"{i}.json", said) for i, job in enumerate(jobs)]
        return tuple(built for result in results for built in result)


def _plain(job: Job | CudaJob) -> dict[str, Any]:
    if isinstance(job, CudaJob):
        return {
            "nvcc": str(job.nvcc),
            "text": job.code.text,
            "flags": job.source.flags,
            "capability": job.chip.capability,
        }
    return {
        "text": job.text,
        "kernel": job.launch.kernel,
        "parameters": job.launch.parameters,
        "options": job.launch.options,
        "capability": job.chip.capability,
        "only_read": job.only_read,
    }


def _run(folder: Path, isolation: str, seconds: float) -> str:
    """Runs the process to its end, or for so long; returns the end of what it said."""
    command = [sys.executable, "-P", "-m", "adjudge.static.compiler", str(folder), isolation]
    with (folder / "said").open("wb") as sink:
        process = subprocess.Popen(
            command,
            env=child_environment(),
            stdin=subprocess.DEVNULL,
            stdout=sink,
            stderr=sink,
            start_new_session=True,
        )
        try:
            process.wait(seconds)
            ending = ""
        except subprocess.TimeoutExpired:
            ending = f"the compiler took longer than {seconds:.0f} s"
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
    return ending or (folder / "said").read_bytes()[-WORDS:].decode(errors="replace").strip()


def _result(job: Job | CudaJob, path: Path, said: str) -> list[Built]:
    """What the process left of a job: all of it is the candidate's word, and read with care."""
    try:
        if path.stat().st_size > _LARGEST:
            raise ValueError("the disassembly is too large to read")
        found = json.loads(path.read_bytes())
        if "error" in found:
            error, refused = str(found["error"])[:WORDS], str(found.get("refused", ""))[:100]
            return [Built(job=job, code=None, error=error, refused=refused)]
        if isinstance(job, Job) and job.only_read:
            return [Built(job=job, code=None)]
        return _read(job, found)
    except FileNotFoundError:
        return [Built(job=job, code=None, error=said or "the compiler ended without a result")]
    except (OSError, ValueError, TypeError, KeyError, RecursionError) as error:
        return [Built(job=job, code=None, error=f"the compiler's result is unreadable: {error}")]


def _read(job: Job | CudaJob, found: dict[str, Any]) -> list[Built]:
    if isinstance(job, Job):
        code = sass.read(
            job.chip,
            str(found["usage"]),
            str(found["sass"]),
            shared=int(found["shared"]),
            tensor_memory=int(found["tensor_memory"]),
        )
        return [Built(job=job, code=code)]
    symbols = [str(part["symbol"]) for part in found["kernels"]]
    named = [readable(symbol, job.code.kernels) for symbol in symbols]
    often = Counter(named)
    missing = [name for name in job.code.kernels if name not in often]
    built = [Built(job=job, code=None, kernel=name, error=_MISSING) for name in missing]
    for part, symbol, name in zip(found["kernels"], symbols, named, strict=True):
        code = sass.read(
            job.chip, str(part["usage"]), str(part["sass"]), spilled=int(part["spilled"])
        )
        # Instances of one template differ in their symbol only.
        kernel = name if often[name] == 1 else f"{name} ({symbol})"
        built.append(Built(job=job, code=code, kernel=kernel))
    return built
