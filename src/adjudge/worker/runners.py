"""Where a worker runs its candidate: on the CPU in Triton's interpreter, or on a GPU.

A runner says where tensors lie, what surrounds a run, and how it is known that all work is done. What a
run is (construct, load weights, call, export) is the same everywhere, and stays in `child`.
"""

from __future__ import annotations

import contextlib
import importlib.util
import mmap
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

import torch

from adjudge.worker import device_face, memory, sandbox
from adjudge.worker.interpreter.session import Log

_TRITON = importlib.util.find_spec("triton") is not None


class Runner(Protocol):
    def close_door(self, folders: Sequence[Path]) -> None:
        """Prepares the process for candidates, and restricts it; `folders` stay writable."""
        ...

    def expect(self, source: str) -> None:
        """Prepares the process for this candidate's text, before it is loaded."""
        ...

    def answering(self) -> contextlib.AbstractContextManager[None]:
        """Around all of the candidate's own code."""
        ...

    def session(self, header: Mapping[str, Any]) -> contextlib.AbstractContextManager[Log]:
        """Around one run; what was launched in it is in the log."""
        ...

    def unobserved(self) -> contextlib.AbstractContextManager[None]:
        """Around calls that are timed: kernels are launched as they would be anywhere else."""
        ...

    def tensor(self, shared: mmap.mmap, spec: Mapping[str, Any]) -> torch.Tensor:
        """The tensor that `spec` describes in shared memory, where candidates expect it."""
        ...

    def device(self) -> torch.device:
        """What stands for the task's own device."""
        ...

    def module(self, built: torch.nn.Module) -> torch.nn.Module:
        """A constructed candidate, with its parameters where its inputs are."""
        ...

    def wait(self) -> None:
        """Returns when all work is done.

        Raises:
            RuntimeError: some of it failed.
        """
        ...

    def give_back(self, shared: mmap.mmap) -> None:
        """Writes the inputs, and what lies around them, back to shared memory, where the judge looks."""
        ...

    def hold_streams(self) -> None:
        """Before a call: delays what it might leave on a stream that nobody waits for."""
        ...

    def late(self, result: Any) -> bool:
        """After a call: whether what it has returned was written by work that the caller's stream does
        not wait for."""
        ...

    def is_dead(self) -> bool:
        """Whether nothing can run any more: the process has to end."""
        ...


class Interpret:
    """The CPU, which answers as a GPU would."""

    def __init__(self, settings: sandbox.Settings) -> None:
        self._settings = settings

    def close_door(self, folders: Sequence[Path]) -> None:
        if self._settings.face == "cuda":
            device_face.put_on()
        sandbox.restrict(self._settings, folders)

    def expect(self, source: str) -> None:
        return None

    def answering(self) -> contextlib.AbstractContextManager[None]:
        return device_face.worn(self._settings.face)

    @contextlib.contextmanager
    def session(self, header: Mapping[str, Any]) -> Iterator[Log]:
        if not _TRITON:
            with memory.poisoned_heap(header["fill"]):
                yield Log()
            return
        from adjudge.worker import interpreter

        options = interpreter.Options(
            schedule=header["schedule"],
            config=header["config"],
            fill=header["fill"],
            guard=header["guard"],
        )
        with memory.poisoned_heap(header["fill"]), interpreter.session(options) as log:
            yield log

    def unobserved(self) -> contextlib.AbstractContextManager[None]:
        return contextlib.nullcontext()

    def tensor(self, shared: mmap.mmap, spec: Mapping[str, Any]) -> torch.Tensor:
        return memory.tensor_at(shared, spec)

    def device(self) -> torch.device:
        return torch.device("cpu")

    def module(self, built: torch.nn.Module) -> torch.nn.Module:
        return built

    def wait(self) -> None:
        return None

    def give_back(self, shared: mmap.mmap) -> None:
        return None

    def hold_streams(self) -> None:
        return None

    def late(self, result: Any) -> bool:
        return False

    def is_dead(self) -> bool:
        return False


def runner_for(settings: sandbox.Settings) -> Runner:
    """The runner that the settings name."""
    if settings.runner == "cuda":
        from adjudge.worker.cuda import Cuda

        return Cuda(settings)
    return Interpret(settings)
