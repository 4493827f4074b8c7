"""The judge's side of compilation: hands kernels to a process that compiles, and reads what came out."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from adjudge.static import sass
from adjudge.static.chips import Chip
from adjudge.static.compiler import WORDS
from adjudge.static.sass import MachineCode
from adjudge.task import Launch
from adjudge.worker.launch import child_environment

#: Seconds that one kernel may take on one chip: a large one takes a second.
JOB_SECONDS = 60.0
#: Bytes that are read of one result: the disassembly of a large kernel is a few million.
_LARGEST = 64 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """One kernel, as it was launched, for one chip."""

    launch: Launch
    #: A module that defines the kernel (`kernels.standalone`).
    text: str
    chip: Chip


@dataclass(frozen=True, slots=True, kw_only=True)
class Built:
    job: Job
    #: None where the compiler refused, with its words.
    code: MachineCode | None
    error: str = ""


def build(jobs: Sequence[Job], *, isolation: str = "full") -> tuple[Built, ...]:
    """Compiles each job, in a process that can write nowhere but to a folder of its own.

    Args:
        isolation: "full" or "none".
    """
    if not jobs:
        return ()
    with tempfile.TemporaryDirectory(prefix="adjudge-") as name:
        folder = Path(name)
        (folder / "jobs.json").write_text(json.dumps([_plain(job) for job in jobs]))
        said = _run(folder, isolation, JOB_SECONDS * len(jobs))
        return tuple(_result(job, folder / f"{i}.json", said) for i, job in enumerate(jobs))


def _plain(job: Job) -> dict[str, Any]:
    return {
        "text": job.text,
        "kernel": job.launch.kernel,
        "parameters": job.launch.parameters,
        "options": job.launch.options,
        "capability": job.chip.capability,
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


def _result(job: Job, path: Path, said: str) -> Built:
    """What the process left of a job: all of it is the candidate's word, and read with care."""
    try:
        if path.stat().st_size > _LARGEST:
            raise ValueError("the disassembly is too large to read")
        found = json.loads(path.read_bytes())
        if "error" in found:
            return Built(job=job, code=None, error=str(found["error"])[:WORDS])
        code = sass.read(
            job.chip,
            str(found["usage"]),
            str(found["sass"]),
            shared=int(found["shared"]),
            tensor_memory=int(found["tensor_memory"]),
        )
        return Built(job=job, code=code)
    except FileNotFoundError:
        return Built(job=job, code=None, error=said or "the compiler ended without a result")
    except (OSError, ValueError, TypeError, KeyError, RecursionError) as error:
        return Built(job=job, code=None, error=f"the compiler's result is unreadable: {error}")
