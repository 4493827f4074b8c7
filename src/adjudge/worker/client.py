"""The judge's side: starts the zygote, spawns workers, sends runs, builds observations.

Everything that comes back is treated as hostile: sizes are bounded, dtypes come from a list, and a
malformed reply is an observation, never an exception here.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import tempfile
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy.typing as npt

from adjudge.closing import Closing
from adjudge.errors import HarnessError, UsageError
from adjudge.observation import FINAL, Observation, OutputTensor, Raised, Status
from adjudge.task import Candidate
from adjudge.worker import protocol, replies
from adjudge.worker.images import Arena, TensorImage
from adjudge.worker.launch import Launch
from adjudge.worker.room import Room

__all__ = ["Brood", "Call", "LoadReply", "RunRequest", "TensorImage", "Worker", "Zygote"]

#: Importing torch and triton takes 3 s on a warm disk; a cold one is given this long.
START_SECONDS = 120.0
#: Loading a candidate: importing its file and what it imports; and where it brings CUDA C++, which is
#: compiled as it is imported, with torch's headers: some 50 s on an idle machine.
LOAD_SECONDS, BUILD_SECONDS = 60.0, 600.0
#: Bytes kept of a candidate's standard output and error.
KEPT_OUTPUT = 32_768


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    #: Trees whose leaves are TensorImages, numbers, strings, booleans, None, dtypes.
    args: Any = ()
    kwargs: Any = field(default_factory=dict)
    #: State loaded by name just before this call.
    weights: Mapping[str, npt.NDArray[Any]] | None = None
    #: Index of an earlier call whose tensors are used again, filled with this call's values.
    in_place_of: int | None = None
    #: One TensorImage for each tensor that the reference returns, None for those without gradient;
    #: empty where no gradients are asked for.
    cotangents: tuple[TensorImage | None, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class RunRequest:
    """Construct, then call; the last call is the observed one. Field meanings as in `Probe`."""

    init_args: Any = ()
    init_kwargs: Any = field(default_factory=dict)
    seed: int = 0
    redrawn: bool = False
    #: State loaded by name after construction.
    weights: Mapping[str, npt.NDArray[Any]] | None = None
    calls: tuple[Call, ...] = ()
    fill: str = "zero"
    guard: str = "zero"
    #: All storages lie at other addresses than in a run that is not displaced.
    displaced: bool = False
    schedule: str = "serial"
    config: int = -1
    #: Float dtype that the module's parameters take after construction; "" leaves their own.
    dtype: str = ""
    training: bool | None = None
    #: (argument path, output path): the outputs are read from these arguments, and what the call
    #: returns is ignored. Empty where outputs are returned.
    destinations: tuple[tuple[str, str], ...] = ()
    #: How those outputs are nested, in words.
    structure: str = ""
    #: Inputs of the observed call, by path, and parameters and buffers, by name, whose content after it
    #: is observed.
    finals: tuple[str, ...] = ()
    state: tuple[str, ...] = ()
    #: Inputs and parameters whose gradients are observed in place of the outputs, by name.
    gradients: tuple[str, ...] = ()
    #: (name, the candidate's own name) of parameters that it names otherwise.
    counterparts: tuple[tuple[str, str], ...] = ()
    #: The backward pass runs a second time through one graph, and is then observed.
    twice: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadReply:
    #: What every run of this candidate would say, where loading already failed; else None.
    observation: Observation | None = None


class Zygote(Closing):
    """A process that imported torch and triton once and forks a worker for each candidate.

    It never holds a task or an answer, and never runs a tensor operation.
    """

    def __init__(self, launch: Launch, *, ahead: int = 0) -> None:
        """Waits until the launched process can fork.

        Args:
            ahead: with how many lanes `prepare` begins the workers of the next candidate; 0 leaves them
                until they are asked for.

        Raises:
            HarnessError: it did not come up.
            UsageError: the machine lacks what the runner needs.
        """
        self._launch: Launch | None = launch
        self._ahead = ahead
        self._next: Brood | None = None
        self._lock = threading.Lock()
        #: "full" or "none": how what runs a candidate's code is shut in.
        self.isolation = launch.isolation
        self._channel = launch.channel
        self._channel.settimeout(START_SECONDS)
        try:
            message = protocol.receive(self._channel)
        except (OSError, protocol.Broken) as error:
            launch.close()
            raise HarnessError(f"the worker's parent process did not start: {error}") from error
        if message is None:
            raise HarnessError(f"the worker's parent process died at start:\n{launch.last_words()}")
        ready = message[0]
        self.layers: tuple[str, ...] = tuple(str(x) for x in ready.get("layers", ()))
        self.device = str(ready.get("device", "cpu"))
        #: Name of the GPU that candidates run on, "" where they run on the CPU.
        self.model = str(ready.get("model", ""))
        #: Bytes of its memory, 0 likewise.
        self.memory = int(ready.get("memory", 0))
        self.room = Room()
        if ready.get("missing"):
            launch.close()
            raise UsageError(
                f"this machine has {ready['missing']}", todo="Use --runner interpret, the default."
            )

    @classmethod
    def start(
        cls,
        *,
        isolation: str = "full",
        face: str = "cuda",
        allow_compiler: bool = False,
        runner: str = "interpret",
        ahead: int = 0,
        share: float = 1.0,
    ) -> Zygote:
        """Launches the process and waits until it can fork.

        Raises:
            HarnessError: it did not come up.
        """
        launch = Launch(
            isolation=isolation,
            face=face,
            allow_compiler=allow_compiler,
            runner=runner,
            share=share,
        )
        return cls(launch, ahead=ahead)

    def twin(self, ahead: int = 0, room: str = "") -> Zygote:
        """The same process, asked over a channel of its own: for a fork of this one.

        Args:
            ahead: as for the constructor.
            room: lock file of those who use the device together; "" is this zygote's own.

        Raises:
            HarnessError: the zygote is gone.
        """
        ours, theirs = socket.socketpair()
        with theirs:
            try:
                with self._lock:
                    protocol.send(self._channel, {"do": "listen"}, (theirs.fileno(),))
            except OSError as error:
                raise HarnessError(f"the worker's parent process is gone: {error}") from error
        twin = object.__new__(type(self))
        twin.layers, twin.device, twin.model = self.layers, self.device, self.model
        twin.isolation = self.isolation
        twin.memory, twin.room = self.memory, Room(room) if room else self.room
        twin._launch, twin._ahead, twin._next = None, ahead, None
        twin._lock, twin._channel = threading.Lock(), ours
        return twin

    def spawn(self, cache: str = "", home: str = "") -> Worker:
        """A fresh worker.

        Args:
            home: folder in which the worker's own is made; "" is the system's for temporary files.
            cache: folder in which workers of one candidate share what they compile; "" gives the worker
                one of its own.

        Raises:
            HarnessError: the zygote is gone.
        """
        ours, theirs = socket.socketpair()
        read_end, write_end = os.pipe()
        try:
            request = {"do": "spawn", "cache": cache, "home": home}
            message = self._asked(request, (theirs.fileno(), write_end))
        except OSError as error:
            raise HarnessError(f"the worker's parent process is gone: {error}") from error
        finally:
            theirs.close()
            os.close(write_end)
        if message is None:
            raise HarnessError("the worker's parent process died")
        return Worker(self, ours, int(message[0]["pid"]), read_end)

    def brood(self, lanes: int = 1) -> Brood:
        """Workers for one candidate.

        Args:
            lanes: how many of them will run at once.

        Raises:
            HarnessError: the zygote is gone.
        """
        taken, self._next = self._next, None
        return taken or Brood(self, lanes)

    def prepare(self) -> None:
        """Begins the workers of the next candidate, for whoever judges many. Not before those of this
        one are up: contexts are opened one after another."""
        if self._ahead and self._next is None:
            self._next = Brood(self, self._ahead)

    def reap(self, pid: int) -> str:
        """How the process ended, in words: "signal SIGSEGV", "exit code 0"."""
        with contextlib.suppress(OSError, protocol.Broken):
            message = self._asked({"do": "reap", "pid": pid})
            if message is not None:
                return str(message[0].get("ending", "unknown"))
        return "unknown"

    def forget(self, pid: int) -> None:
        """Ends a worker without asking how it ends, or waiting for it."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, signal.SIGKILL)
        with contextlib.suppress(OSError), self._lock:
            protocol.send(self._channel, {"do": "forget", "pid": pid})

    def settle(self) -> None:
        """Waits until the forgotten have ended, and what they held on the device is free."""
        with contextlib.suppress(OSError, protocol.Broken):
            self._asked({"do": "settle"})

    def _asked(
        self, request: dict[str, Any], fds: tuple[int, ...] = ()
    ) -> tuple[dict[str, Any], list[int]] | None:
        """The answer to one request; several threads may ask."""
        with self._lock:
            protocol.send(self._channel, request, fds)
            return protocol.receive(self._channel)

    def close(self) -> None:
        if self._next is not None:
            self._next.close()
        if self._launch is not None:
            self._launch.close()
        else:
            self._channel.close()


class Brood(Closing):
    """The workers of one candidate.

    Where opening a context takes a third of a second, two are begun before they are asked for; and what
    one of them has compiled, the others load. No other candidate's workers ever see that folder.
    """

    #: Processes that nearly every verdict needs: the ordinary one, and a fresh one beside it.
    AHEAD = 2

    def __init__(self, zygote: Zygote, lanes: int = 1) -> None:
        """Begins the workers.

        Args:
            lanes: how many of them run at once.

        Raises:
            HarnessError: the zygote is gone.
        """
        self._zygote = zygote
        ahead = self.AHEAD + lanes - 1 if zygote.model else 0
        #: Holds a folder for each worker: they are killed, and leave theirs behind.
        self._home = tempfile.mkdtemp(prefix="adjudge-brood-")
        self._cache = tempfile.mkdtemp(prefix="cache-", dir=self._home) if zygote.model else ""
        self._own = True
        self._waiting = [self._begun() for _ in range(ahead)]
        #: Lanes whose forks have ended, and whose workers live.
        self._idle: list[Lane] = []

    def _begun(self) -> Worker:
        return self._zygote.spawn(self._cache, self._home)

    def worker(self) -> Worker:
        """One that holds no candidate yet.

        Raises:
            HarnessError: the zygote is gone.
        """
        return self._waiting.pop(0) if self._waiting else self._begun()

    def lane(self) -> Lane:
        """One of the workers for a fork of this process.

        Raises:
            HarnessError: the zygote is gone.
        """
        if self._idle:
            return self._idle.pop()
        worker = self._waiting.pop() if len(self._waiting) > 1 else self._begun()
        return Lane(self._zygote.twin(), worker, self._cache, self._home)

    def take_back(self, lane: Lane) -> None:
        """Keeps a lane, whose fork has ended, for the next one."""
        self._idle.append(lane)

    @classmethod
    def within(cls, lane: Lane) -> Brood:
        """In the fork: the workers of that lane, from its one on."""
        brood = object.__new__(cls)
        lane.worker.taken_over(lane.zygote, loaded=lane.reply is not None)
        brood._zygote, brood._cache, brood._own = lane.zygote, lane.cache, False
        brood._home, brood._idle = lane.home, []
        brood._waiting = [lane.worker] if lane.reply is None else []
        return brood

    def close(self) -> None:
        """Ends those that were not asked for, or are idle; the others must have ended."""
        for worker in self._waiting:
            worker.close()
        self._waiting.clear()
        for lane in self._idle:
            lane.worker.close()
            lane.zygote.close()
        self._idle.clear()
        if self._own:
            shutil.rmtree(self._home, ignore_errors=True)


@dataclass(frozen=True, slots=True)
class Lane:
    """What a fork of the judge needs to run a part of the probes."""

    zygote: Zygote
    worker: Worker
    cache: str
    home: str
    #: What loading said where the worker holds the candidate already, for an earlier fork.
    reply: LoadReply | None = None

    def let_go(self) -> None:
        """In the process that forked: the worker has ended, or ends for want of one to speak to."""
        self.worker.let_go()
        self.zygote.close()


class Worker:
    """One process, one candidate."""

    def __init__(self, zygote: Zygote, channel: socket.socket, pid: int, output: int) -> None:
        self._zygote = zygote
        self._channel = channel
        self.pid = pid
        self.alive = True
        self._kept = bytearray()
        self._output_fd = output
        # Begun where the worker is first spoken to, which may be a fork of the process that made it.
        self._reader = threading.Thread(target=self._drain, daemon=True)

    def load(self, candidate: Candidate) -> LoadReply:
        """Imports the candidate's source in the worker.

        Raises:
            HarnessError: the worker could not prepare itself.
        """
        self._await_door()
        header = {
            "do": "load",
            "source": candidate.source,
            "files": [list(item) for item in candidate.files],
            "entry": candidate.entry,
            "kind": candidate.kind,
            "name": candidate.name,
        }
        builds = candidate.language == "cuda"
        outcome = self._ask(header, BUILD_SECONDS if builds else LOAD_SECONDS)
        if isinstance(outcome, Observation):
            return LoadReply(observation=outcome)
        reply, fds = outcome
        _close(fds)
        raised = replies.raised(reply)
        if raised is None:
            return LoadReply()
        status = Status.UNSUPPORTED if reply.get("unsupported") else Status.RAISED
        return LoadReply(observation=Observation(status=status, raised=raised))

    def _await_door(self) -> None:
        """Waits for the worker's first message, which it sends before it holds anything hostile."""
        self._reader.start()
        self._channel.settimeout(START_SECONDS)
        try:
            message = protocol.receive(self._channel)
        except (OSError, protocol.Broken) as error:
            raise HarnessError(f"a worker did not start: {error}") from error
        unfit = message[0].get("unfit") if message is not None else self._died().ending
        if unfit:
            raise HarnessError(f"a worker did not start: {unfit}")

    def describe_weights(
        self, init_args: Any, init_kwargs: Any, *, seed: int
    ) -> tuple[tuple[str, tuple[int, ...], str, str], ...] | Raised | None:
        """(name, shape, dtype, sha256) of each parameter and buffer after a seeded construction."""
        arena = Arena("zero")
        header = {
            "do": "describe",
            "init_args": arena.tree(init_args, "init"),
            "init_kwargs": arena.tree(init_kwargs, "init"),
            "seed": seed,
        }
        outcome = self._send(header, arena, LOAD_SECONDS)
        arena.close()
        if isinstance(outcome, Observation):
            return None
        reply, fds = outcome
        _close(fds)
        return replies.raised(reply) or replies.weights(reply)

    def run(self, request: RunRequest, timeout: float) -> Observation:
        """One run; every fault of the candidate is in the observation."""
        arena = Arena(request.guard, displaced=request.displaced)
        begun = time.perf_counter()
        try:
            outcome = self._send(self._run_header(request, arena), arena, timeout)
            if isinstance(outcome, Observation):
                return outcome
            reply, fds = outcome
            try:
                observation = replies.observation(reply, fds, state=request.state)
            except replies.Malformed as error:
                self.close()
                return Observation(status=Status.MALFORMED, ending=str(error))
            finally:
                _close(fds)
            elapsed = time.perf_counter() - begun
            told = observation.seconds
            return replace(
                observation,
                # The worker's own clock leaves out the passage; ours bounds what it may claim.
                seconds=told if 0 <= told <= elapsed else elapsed,
                mutated_inputs=arena.mutated(request.calls[-1].in_place_of),
                faults=observation.faults + arena.guard_faults(),
                stdout=self._output(),
                finals=self._finals(request, arena) if observation.answered else (),
                **self._destinations(request, arena, observation),
            )
        finally:
            arena.close()

    def _finals(self, request: RunRequest, arena: Arena) -> tuple[OutputTensor, ...]:
        reused = request.calls[-1].in_place_of
        return tuple(
            arena.output(name, f"{FINAL}{name}", self._zygote.device, reused)
            for name in request.finals
        )

    def _destinations(
        self, request: RunRequest, arena: Arena, observation: Observation
    ) -> dict[str, Any]:
        """The outputs that the candidate was to write into memory of the caller's, as changes of the
        observation: the judge reads them itself."""
        if not request.destinations or not observation.answered:
            return {}
        reused = request.calls[-1].in_place_of
        outputs = tuple(
            arena.output(name, path, self._zygote.device, reused)
            for name, path in request.destinations
        )
        return {"outputs": outputs, "structure": request.structure}

    def _run_header(self, request: RunRequest, arena: Arena) -> dict[str, Any]:
        calls = []
        for number, call in enumerate(request.calls):
            last = number == len(request.calls) - 1
            prefix = "" if last else f"call {number} "
            calls.append(
                {
                    "args": arena.tree(call.args, f"{prefix}args"),
                    "kwargs": arena.tree(call.kwargs, f"{prefix}kwargs"),
                    "weights": None if call.weights is None else arena.weights(call.weights),
                    "in_place_of": call.in_place_of,
                    "cotangents": arena.tree(call.cotangents, f"{prefix}cotangents"),
                }
            )
        return {
            "do": "run",
            "init_args": arena.tree(request.init_args, "init"),
            "init_kwargs": arena.tree(request.init_kwargs, "init"),
            "seed": request.seed,
            "redrawn": request.redrawn,
            "weights": None if request.weights is None else arena.weights(request.weights),
            "calls": calls,
            "fill": request.fill,
            "guard": request.guard,
            "displaced": request.displaced,
            "schedule": request.schedule,
            "config": request.config,
            "dtype": request.dtype,
            "training": request.training,
            "returns": not request.destinations,
            "state": list(request.state),
            "gradients": list(request.gradients),
            "counterparts": dict(request.counterparts),
            "twice": request.twice,
        }

    def exchange(
        self, header: dict[str, Any], timeout: float, fds: tuple[int, ...] = ()
    ) -> tuple[dict[str, Any], list[int]] | Observation:
        """One request of another kind: the answer as it came, and descriptors that the caller closes; or
        the observation that there is none."""
        return self._ask(header, timeout, fds)

    def _send(
        self, header: dict[str, Any], arena: Arena, timeout: float
    ) -> tuple[dict[str, Any], list[int]] | Observation:
        fd, size = arena.write()
        try:
            return self._ask({**header, "memory": size}, timeout, (fd,))
        finally:
            os.close(fd)

    def _ask(
        self, header: dict[str, Any], timeout: float, fds: tuple[int, ...] = ()
    ) -> tuple[dict[str, Any], list[int]] | Observation:
        """The worker's answer, or the observation that there is none."""
        self._kept.clear()
        self._channel.settimeout(timeout)
        try:
            protocol.send(self._channel, header, fds)
            message = protocol.receive(self._channel, time.monotonic() + timeout)
        except TimeoutError:
            self.close()
            words = f"no answer within {timeout:g} s"
            return Observation(status=Status.HUNG, ending=words, stdout=self._output())
        except protocol.Broken as error:
            self.close()
            return Observation(status=Status.MALFORMED, ending=str(error), stdout=self._output())
        except OSError:
            message = None
        return self._died() if message is None else message

    def _died(self) -> Observation:
        self.alive = False
        ending = self._zygote.reap(self.pid)
        status = Status.CRASHED if ending.startswith("signal") else Status.EXITED
        self.close()
        return Observation(status=status, ending=ending, stdout=self._output())

    def _drain(self) -> None:
        fd = self._output_fd
        with contextlib.suppress(OSError):
            while part := os.read(fd, 65_536):
                room = KEPT_OUTPUT - len(self._kept)
                if room > 0:
                    self._kept += part[:room]
        os.close(fd)

    def _output(self) -> str:
        if not self.alive and self._reader.is_alive():
            self._reader.join(timeout=0.2)
        else:
            time.sleep(0)
        return bytes(self._kept).decode(errors="replace")

    def close(self) -> None:
        if self.alive:
            self._zygote.forget(self.pid)
        self.let_go()

    def let_go(self) -> None:
        """Lets another process that holds the same descriptors have the worker."""
        if self._reader.ident is None and self._output_fd >= 0:
            os.close(self._output_fd)
            self._output_fd = -1
        self.alive = False
        self._channel.close()

    def taken_over(self, zygote: Zygote, *, loaded: bool = False) -> None:
        """In a fork: the worker is this process's own, and its parent is asked by `zygote`."""
        self._zygote = zygote
        if loaded:
            self._reader.start()


def _close(fds: list[int]) -> None:
    for fd in fds:
        with contextlib.suppress(OSError):
            os.close(fd)
