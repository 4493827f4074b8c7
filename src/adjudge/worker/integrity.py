"""What a candidate changed around itself. A hint from inside its own process, never a verdict."""

from __future__ import annotations

import _thread
import builtins
import math
import os
import signal
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from types import BuiltinFunctionType, FrameType, FunctionType, MethodDescriptorType
from typing import Any, ClassVar

import torch

#: Ours before a candidate can replace it.
_sleep, _listdir = time.sleep, os.listdir

#: (module, attribute) pairs that graders use and cheats patch.
_WATCHED: tuple[tuple[Any, str], ...] = (
    *((torch, name) for name in ("allclose", "equal", "isclose", "manual_seed", "empty", "randn")),
    (torch.testing, "assert_close"),
    (torch.Tensor, "__eq__"),
    (torch.Tensor, "allclose"),
    (torch.Tensor, "equal"),
    (torch.Tensor, "data_ptr"),
    *((time, name) for name in ("time", "perf_counter", "monotonic", "time_ns", "sleep")),
    *((torch.cuda, name) for name in ("synchronize", "Event", "Stream", "current_stream")),
    *((builtins, name) for name in ("print", "open", "isinstance", "abs", "max", "__import__")),
)
#: Of these every public function that keeps its identity is watched. Not `triton.language`, which the
#: interpreter rewrites for each run.
_WHOLE: tuple[Any, ...] = (
    *(torch, torch.Tensor, torch.nn.functional, torch.linalg),
    *(time, math, builtins),
)


_FUNCTIONS = (FunctionType, BuiltinFunctionType, MethodDescriptorType)


@dataclass(frozen=True, slots=True)
class Watched:
    owner: Any
    attribute: str
    value: Any
    code: Any


def snapshot(*, whole: bool) -> list[Watched]:
    """Identity and code of each watched function.

    Args:
        whole: also of every public one of torch, the timers and the builtins. What a driver or a
            compiler for a GPU replaces there in the course of honest work has not been measured.
    """
    values = (*_values(), *(_whole() if whole else ()))
    return [Watched(owner, name, value, _code(value)) for owner, name, value in values]


def _whole() -> Iterator[tuple[Any, str, Any]]:
    for owner in _WHOLE:
        for name in dir(owner):
            value = None if name.startswith("_") else getattr(owner, name, None)
            if isinstance(value, _FUNCTIONS) and value is getattr(owner, name):
                yield owner, name, value


def _values() -> Iterator[tuple[Any, str, Any]]:
    for owner, name in _WATCHED:
        yield owner, name, getattr(owner, name, None)
    # The class in place now: the one that answers for a GPU replaced the stock one.
    for name in ("elapsed_time", "record", "synchronize"):
        yield torch.cuda.Event, name, getattr(torch.cuda.Event, name, None)
    yield from _own()
    testing = sys.modules.get("triton.testing")
    if testing is not None:
        yield testing, "do_bench", getattr(testing, "do_bench", None)


def _own() -> Iterator[tuple[Any, str, Any]]:
    """The functions of this package that live in the candidate's process, and its classes' methods."""
    for module_name, module in list(sys.modules.items()):
        if not module_name.startswith("adjudge."):
            continue
        for name, value in list(vars(module).items()):
            if getattr(value, "__module__", None) != module_name:
                continue
            if isinstance(value, type):
                for method, function in list(vars(value).items()):
                    if isinstance(function, FunctionType):
                        yield value, method, function
            elif isinstance(value, FunctionType):
                yield module, name, value


def _name(owner: Any) -> str:
    return str(getattr(owner, "__name__", owner))


def _code(value: Any) -> Any:
    """Assigning to `__code__` keeps the identity and changes the function."""
    return getattr(value, "__code__", None)


def changes(before: list[Watched]) -> list[str]:
    found = []
    for was in before:
        now = getattr(was.owner, was.attribute, None)
        if now is not was.value or (was.code is not None and _code(now) is not was.code):
            found.append(f"replaced {_name(was.owner)}.{was.attribute}")
    return list(dict.fromkeys(found))


#: Seconds that a thread is given to begin: until then Python does not count it.
_BEGIN_SECONDS, _STEP_SECONDS = 1.0, 0.02


class Threads:
    """Threads, counted before the candidate is loaded and after each run."""

    def __init__(self) -> None:
        # Opened before the door is closed: afterwards /proc cannot be read.
        try:
            self._tasks = os.open("/proc/self/task", os.O_RDONLY | os.O_DIRECTORY)
        except OSError:
            self._tasks = -1
        self.begin()

    def begin(self) -> None:
        """Counts from here on: behind the door, what the device's driver has started is there."""
        self._before = _thread._count()
        self._tasks_before = self._count_tasks()

    def left_running(self) -> int:
        """How many of Python's threads are new. One that the system has made and Python does not count
        yet is waited for."""
        waited = 0.0
        while self._begins() and waited < _BEGIN_SECONDS:
            _sleep(_STEP_SECONDS)
            waited += _STEP_SECONDS
        # What is there by now and is not Python's belongs to a library (torch, a driver).
        self._tasks_before = max(self._tasks_before, self._count_tasks())
        return _thread._count() - self._before

    def _begins(self) -> bool:
        return self._count_tasks() > self._tasks_before and _thread._count() <= self._before

    def _count_tasks(self) -> int:
        return len(_listdir(self._tasks)) if self._tasks >= 0 else 0


def left_running(threads: Threads) -> list[str]:
    """What could still change an output after it was returned."""
    more = threads.left_running()
    found = [f"left {more} threads running"] if more > 0 else []
    timers = (signal.ITIMER_REAL, signal.ITIMER_VIRTUAL, signal.ITIMER_PROF)
    return found + (["left a timer running"] if any(signal.getitimer(t)[0] for t in timers) else [])


class Audit:
    """Records what the candidate's own frames ask of the machine, through Python's audit events."""

    _EVENTS: ClassVar[dict[str, str]] = {
        "socket.connect": "opened a socket",
        "socket.bind": "opened a socket",
        "socket.sendto": "sent to a socket",
        "subprocess.Popen": "started a process",
        "os.system": "started a process",
        "os.exec": "started a process",
        "os.posix_spawn": "started a process",
        "os.fork": "forked",
        "os.kill": "sent a signal",
        "os.putenv": "changed the environment",
        "sys._getframe": "walked the stack",
        "gc.get_objects": "searched the heap",
        "gc.get_referrers": "searched the heap",
        "ctypes.dlopen": "opened a shared library",
    }

    def __init__(self, path: str, folders: tuple[str, ...]) -> None:
        self._path = path
        self._folders = folders
        self.seen: list[str] = []
        self.armed = False
        sys.addaudithook(self._hook)

    def _hook(self, event: str, arguments: tuple[Any, ...]) -> None:
        if not self.armed or len(self.seen) > 50:
            return
        writing = event == "open" and self._writes(arguments)
        words = f"wrote to {arguments[0]}"[:150] if writing else self._EVENTS.get(event)
        if words is None or words in self.seen:
            return
        self.armed = False
        try:
            # Writing is looked for a few frames up (pathlib, numpy.save); the rest only where the
            # candidate asks itself, since torch and triton walk stacks and open libraries too.
            if self._from_candidate(4 if writing else 1):
                self.seen.append(words)
        finally:
            self.armed = True

    def _writes(self, arguments: tuple[Any, ...]) -> bool:
        path, mode = arguments[0], arguments[1]
        if not isinstance(path, str) or path.startswith((*self._folders, "/dev/null")):
            return False
        return isinstance(mode, str) and any(c in mode for c in "wax+")

    def _from_candidate(self, depth: int) -> bool:
        # Frame 0 is this one, 1 the hook, 2 whoever caused the event.
        frame: FrameType | None = sys._getframe(2)
        for _ in range(depth):
            if frame is None:
                return False
            if frame.f_code.co_filename == self._path:
                return True
            frame = frame.f_back
        return False
