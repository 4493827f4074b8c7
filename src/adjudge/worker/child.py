"""Inside the worker: load the candidate once, then run what is asked and report what happened."""

from __future__ import annotations

import contextlib
import gc
import hashlib
import importlib.util
import mmap
import os
import socket
import sys
import tempfile
import time
import traceback
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import torch

from adjudge import arrays
from adjudge.observation import GRADIENT
from adjudge.weights import construct, described
from adjudge.worker import (
    complaints,
    gradients,
    integrity,
    memory,
    protocol,
    runners,
    sandbox,
    streams,
    timing,
)
from adjudge.worker.interpreter.session import Log, Unsupported

#: Calls whose outputs are kept alive, to see whether a later call changes them.
_KEPT_ALIVE = 4


class _Unreadable(Exception):
    """The return value is not made of tensors and numbers."""


def serve(channel_fd: int, output: int, cache: str, home: str, settings: sandbox.Settings) -> None:
    """Answers requests until the judge hangs up.

    Args:
        cache: folder of what this candidate has compiled; "" takes the worker's own.
        home: folder in which the worker's own is made; "" is the system's for temporary files.
    """
    channel = _private(channel_fd, output)
    with tempfile.TemporaryDirectory(prefix="adjudge-", dir=home or None) as folder:
        try:
            session = _Session(Path(folder), Path(cache or folder), settings)
        except Exception as error:
            # Nothing of the candidate is here yet: this is the machine's fault, or ours.
            protocol.send(channel, {"unfit": f"{type(error).__name__}: {error}"[:2000]})
            os._exit(0)
        protocol.send(channel, {"unfit": ""})
        while True:
            message = protocol.receive(channel)
            if message is None:
                os._exit(0)
            header, fds = message
            try:
                reply, out = session.answer(header, fds)
            except Exception as error:
                # The candidate's own exceptions were caught: what gets here is a fault of ours.
                words = f"the worker failed: {type(error).__name__}: {error}"
                reply, out = {"status": "unsupported", "notes": [words[:500]]}, -1
            for fd in fds:
                os.close(fd)
            protocol.send(channel, reply, (out,) if out >= 0 else ())
            if out >= 0:
                os.close(out)


def _private(channel_fd: int, output: int) -> socket.socket:
    """Keeps the channel and the captured output; closes every other descriptor (Landlock does not
    cover descriptors that are already open)."""
    os.dup2(output, 1)
    os.dup2(output, 2)
    null = os.open("/dev/null", os.O_RDONLY)
    os.dup2(null, 0)
    keep = os.dup2(channel_fd, 100)
    os.closerange(3, 100)
    os.closerange(101, 4096)
    return socket.socket(fileno=keep)


class _Session:
    """One candidate in one process."""

    def __init__(self, folder: Path, cache: Path, settings: sandbox.Settings) -> None:
        self._folder = folder
        self._settings = settings
        self._entry: Any = None
        self._entry_name = ""
        self._module: Any = None
        self._kind = "module"
        self._path = str(folder / "candidate.py")
        self._source = ""
        os.environ["TMPDIR"] = os.environ["HOME"] = str(folder)
        for name in ("TRITON_CACHE_DIR", "TORCHINDUCTOR_CACHE_DIR", "TORCH_EXTENSIONS_DIR"):
            os.environ[name] = str(cache)
        os.environ[protocol.INSIDE] = "1"
        tempfile.tempdir = str(folder)
        sys.dont_write_bytecode = True
        os.chdir(folder)
        self._audit = integrity.Audit(self._path, (str(folder), str(cache)))
        self._threads = integrity.Threads()
        self.runner = runners.runner_for(settings)
        self.runner.close_door((folder, cache))
        self._threads.begin()
        self._before: list[integrity.Watched] = []
        self._bench = timing.Bench(self)

    def answer(self, header: dict[str, Any], fds: list[int]) -> tuple[dict[str, Any], int]:
        what = header["do"]
        if what == "load":
            return self._load(header), -1
        if what in timing.PARTS:
            return self._bench.answer(header, fds)
        shared = mmap.mmap(fds[0], header["memory"])
        if what == "describe":
            return self._describe(header, shared), -1
        return self._run(header, shared)

    def _load(self, header: dict[str, Any]) -> dict[str, Any]:
        for name, text in header["files"]:
            path = self._folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        self._source = header["source"]
        Path(self._path).write_text(self._source)
        self._kind = header["kind"]
        self.runner.expect(header["source"])
        self._before = integrity.snapshot()
        sys.path.insert(0, str(self._folder))
        try:
            with self._watched():
                module = self._imported(header["name"])
                target: Any = module
                for part in header["entry"].split("."):
                    target = getattr(target, part)
                self._entry, self._entry_name, self._module = target, header["entry"], module
        except BaseException as error:
            return {"status": "raised", **self._raised(error, "load")}
        return {"status": "loaded"}

    def _imported(self, name: str) -> ModuleType:
        # Triton reads the kernel's source back from the file, so the text must be one.
        spec = importlib.util.spec_from_file_location("candidate", self._path)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules["candidate"] = module
        spec.loader.exec_module(module)
        return module

    @contextlib.contextmanager
    def _watched(self) -> Iterator[None]:
        self._audit.armed = True
        try:
            with self.runner.answering():
                yield
        finally:
            self._audit.armed = False

    def _construct(self, header: dict[str, Any], shared: mmap.mmap, redrawn: bool) -> Any:
        args = self.decoded(header["init_args"], shared)
        kwargs = self.decoded(header["init_kwargs"], shared)
        if self._kind == "function":
            return self._entry
        built = construct(self._entry, args, kwargs, seed=header["seed"], redrawn=redrawn)
        if header.get("dtype") and isinstance(built, torch.nn.Module):
            built = built.to(arrays.torch_dtype(header["dtype"]))
        return self.runner.module(built) if isinstance(built, torch.nn.Module) else built

    def explicit_backward(self, built: Any) -> Any:
        return gradients.explicit_backward(built, self._module, self._entry_name)

    def decoded(self, node: Any, shared: mmap.mmap) -> Any:
        """The arguments that the judge has sent, tensors placed where the runner has them."""
        if "tuple" in node:
            return tuple(self.decoded(item, shared) for item in node["tuple"])
        if "list" in node:
            return [self.decoded(item, shared) for item in node["list"]]
        if "dict" in node:
            return {key: self.decoded(item, shared) for key, item in node["dict"]}
        if "tensor" in node:
            return self.runner.tensor(shared, node["tensor"])
        value = node["value"]
        if isinstance(value, dict):
            if "dtype" in value:
                return arrays.torch_dtype(value["dtype"])
            return self.runner.device() if "device" in value else slice(*value["slice"])
        return value

    def _describe(self, header: dict[str, Any], shared: mmap.mmap) -> dict[str, Any]:
        try:
            with self._watched():
                built = self._construct(header, shared, False)
        except BaseException as error:
            return {"status": "raised", **self._raised(error, "construct")}
        rows = described(built) if isinstance(built, torch.nn.Module) else []
        return {"status": "described", "weights": rows}

    def _run(self, header: dict[str, Any], shared: mmap.mmap) -> tuple[dict[str, Any], int]:
        run = _Run(self, header, shared)
        try:
            with contextlib.ExitStack() as stack:
                run.log = stack.enter_context(self.runner.session(header))
                stack.enter_context(run.allocations)
                stack.enter_context(self._watched())
                stack.enter_context(torch.no_grad())
                run.execute()
        except _Unreadable as error:
            return {"status": "unreadable", "notes": [str(error)], **self._facts(run, None)}, -1
        except BaseException as error:
            raised = self._raised(error, run.phase)
            self._end_if_dead(raised)
            facts = self._facts(run, run.log)
            status = "unsupported" if raised.pop("unsupported", False) else "raised"
            return {"status": status, **raised, **facts}, -1
        if run.log is not None and run.log.unsupported:
            words = list(dict.fromkeys(run.log.unsupported))
            return {"status": "unsupported", "notes": words, **self._facts(run, run.log)}, -1
        outputs, state, fd = run.exported()
        reply = {
            "status": "answered",
            "outputs": outputs,
            "state": state,
            "structure": run.structure,
            "mutated_parameters": run.mutated_parameters(),
            "call_digests": run.digests,
            "earlier_output_changed": run.earlier_changed(),
            "seconds": run.seconds,
            **run.gradient_facts(),
            **self._facts(run, run.log),
        }
        return reply, fd

    def constructed(self, header: dict[str, Any], shared: mmap.mmap) -> _Run:
        """The candidate with its weights, for whoever calls it without observing it."""
        run = _Run(self, header, shared)
        run.construct()
        return run

    def fell(self, error: BaseException, phase: str) -> dict[str, Any]:
        """What an exception of the candidate's reads as; ends the process where the device is dead."""
        raised = self._raised(error, phase)
        self._end_if_dead(raised)
        return {"status": "raised", **raised}

    def _facts(self, run: _Run, log: Any) -> dict[str, Any]:
        tampering = [*self.tampering(), *run.tampering]
        facts: dict[str, Any] = {
            "tampering": list(dict.fromkeys(tampering)),
            "faults": [asdict(f) for f in run.allocations.faults()][:100],
            "peak_bytes": run.peak_bytes,
            "live_bytes": run.live_bytes,
            "library": sorted(run.allocations.library)[:1000],
        }
        if log is not None:
            facts["faults"] += [asdict(f) for f in log.faults[:100]]
            facts["races"] = [asdict(r) for r in log.races[:100]]
            facts["compiled"] = [float(s) for s in log.compiled[:1000]]
            facts["launches"] = [asdict(launch) for launch in log.launches[:1000]]
        return facts

    def tampering(self) -> list[str]:
        """What the candidate has done around itself so far, in words."""
        seen = [*self._audit.seen, *integrity.changes(self._before)]
        return seen + integrity.left_running(self._threads)

    def _end_if_dead(self, raised: dict[str, Any]) -> None:
        """A device that has faulted takes the process with it, so that the judge sees a crash and not a
        polite refusal."""
        if self.runner.is_dead():
            print(f"the device has faulted: {raised['raised']['message']}", flush=True)
            os.abort()

    def _raised(self, error: BaseException, phase: str) -> dict[str, Any]:
        if isinstance(error, SystemExit):
            # The candidate asked to leave: it leaves, and the judge sees it from outside.
            sys.stdout.flush()
            os._exit(error.code if isinstance(error.code, int) else 0)
        root = _root(error)
        lines = traceback.format_exception(error)
        words = "".join(lines)[-4_000:]
        raised = {
            "type": type(root).__name__,
            "message": str(root)[:10_000],
            "traceback": words,
            "phase": phase,
            "from_candidate": self._path in words,
            "complaint": complaints.words_of(error, self._source, self._path)[:2_000],
        }
        unsupported = isinstance(root, NotImplementedError) and self._path not in "".join(
            traceback.format_tb(root.__traceback__)[-1:]
        )
        return {"raised": raised, "unsupported": unsupported or isinstance(root, Unsupported)}


def _root(error: BaseException) -> BaseException:
    """The cause inside the interpreter's wrapper, which repeats it as text."""
    while type(error).__name__ == "InterpreterError" and error.__cause__ is not None:
        error = error.__cause__
    return error


class _Run:
    """One construction and its calls."""

    def __init__(self, session: _Session, header: dict[str, Any], shared: mmap.mmap) -> None:
        self._session = session
        self._header = header
        self._shared = shared
        self.allocations = memory.GuardedAllocations(
            header["fill"], header["guard"], displaced=header["displaced"]
        )
        self.phase = "construct"
        self.structure = ""
        self.digests: list[str] = []
        self.live_bytes: list[int] = []
        self.peak_bytes = 0
        self.seconds = 0.0
        self.tampering: list[str] = []
        self.built: Any = None
        self._result: Any = None
        self._inputs: list[tuple[str, torch.Tensor]] = []
        self._state: dict[str, bytes] = {}
        #: Parameters and buffers by name after the observed call: some are replaced in it, not written.
        self._after: dict[str, torch.Tensor] = {}
        self._earlier: list[tuple[torch.Tensor, bytes]] = []
        self._pulled: gradients.Pulled | None = None
        self.log: Log | None = None

    def construct(self) -> None:
        header = self._header
        self.built = self._session._construct(header, self._shared, header["redrawn"])
        if not callable(self.built):
            raise TypeError(f"{type(self.built).__name__} is not callable")
        self._load_weights(header["weights"])

    def execute(self) -> None:
        header = self._header
        self.construct()
        placed: list[tuple[Any, Any]] = []
        for number, call in enumerate(header["calls"]):
            self._load_weights(call["weights"])
            args, kwargs = self._arguments(call, placed)
            placed.append((args, kwargs))
            last = number == len(header["calls"]) - 1
            if last:
                self._inputs = [
                    *arrays.tensors_in(args, "args"),
                    *arrays.tensors_in(kwargs, "kwargs"),
                ]
                self._state = {n: arrays.to_numpy(t).tobytes() for n, t in self._named_state()}
            self._call(call, args, kwargs, last)
            self.live_bytes.append(self._alive())

    def _alive(self) -> int:
        """Bytes allocated and not given back. Objects that refer to each other are collected only where
        memory seems to grow: looking for them takes longer than a call."""
        before = self.live_bytes[-1] if self.live_bytes else 0
        if len(self.live_bytes) > _KEPT_ALIVE and self.allocations.tally.live_bytes > before:
            gc.collect()
        return self.allocations.tally.live_bytes

    def _arguments(self, call: dict[str, Any], placed: list[tuple[Any, Any]]) -> tuple[Any, Any]:
        args = self._session.decoded(call["args"], self._shared)
        kwargs = self._session.decoded(call["kwargs"], self._shared)
        if call["in_place_of"] is None:
            return args, kwargs
        held = placed[call["in_place_of"]]
        old = [*arrays.tensors_in(held[0]), *arrays.tensors_in(held[1])]
        new = [*arrays.tensors_in(args), *arrays.tensors_in(kwargs)]
        for (_, target), (_, source) in zip(old, new, strict=True):
            target.copy_(source)
        return held  # type: ignore[no-any-return]

    def _load_weights(self, rows: list[dict[str, Any]] | None) -> None:
        if rows is None or not isinstance(self.built, torch.nn.Module):
            return
        self.phase = "weights"
        state = {row["name"]: memory.tensor_at(self._shared, row) for row in rows}
        own = self.built.state_dict()
        for name, tensor in state.items():
            if name in own:
                own[name].copy_(tensor)

    def _call(self, call: dict[str, Any], args: Any, kwargs: Any, last: bool) -> None:
        self.phase = "call"
        cotangents = self._session.decoded(call["cotangents"], self._shared)
        tally = self.allocations.tally
        held = tally.peak_bytes = tally.live_bytes
        self._session.runner.hold_streams()
        start = time.perf_counter()
        result = None
        if self._header["gradients"]:
            self._pulled = self._differentiated(args, kwargs, cotangents)
        else:
            result = self.built(*args, **kwargs)
            if self._session.runner.late(result):
                self.tampering.append(streams.LATE)
        self._session.runner.wait()
        self.seconds = time.perf_counter() - start
        self.peak_bytes = tally.peak_bytes - held
        if last:
            self._session.runner.give_back(self._shared)
            self._after = dict(self._named_state())
        self.structure, leaves = self._observed(result)
        for _, leaf in leaves:
            if isinstance(leaf, torch.Tensor) and type(leaf) not in (
                torch.Tensor,
                torch.nn.Parameter,
            ):
                self.tampering.append(f"returned a tensor of type {type(leaf).__name__}")
        tensors = [t for _, t in leaves if isinstance(t, torch.Tensor)]
        raw = [arrays.to_numpy(t).tobytes() for t in tensors]
        self.digests.append(hashlib.sha256(b"".join(raw)).hexdigest())
        if last:
            self._result = leaves
        elif self._pulled is None and len(self._earlier) < _KEPT_ALIVE:
            self._earlier += list(zip(tensors, raw, strict=True))

    def _observed(self, result: Any) -> tuple[str, list[tuple[str, Any]]]:
        if self._pulled is not None:
            return _gradient_leaves(self._pulled)
        # Where the caller gives the memory of the outputs, what is returned is nobody's matter.
        return _flattened(result) if self._header["returns"] else ("none", [])

    def _differentiated(self, args: Any, kwargs: Any, cotangents: Any) -> gradients.Pulled:
        return gradients.pull(
            self.built,
            self._session.explicit_backward(self.built),
            args,
            kwargs,
            wanted=self._header["gradients"],
            counterparts=self._header["counterparts"],
            cotangents=cotangents,
            twice=self._header["twice"],
        )

    def gradient_facts(self) -> dict[str, Any]:
        if self._pulled is None:
            return {}
        found = self._pulled
        return {
            "backward": found.backward,
            "missing": [name for name, gradient in found.gradients.items() if gradient is None],
            "disconnected": list(found.disconnected),
        }

    def _named_state(self) -> list[tuple[str, torch.Tensor]]:
        if not isinstance(self.built, torch.nn.Module):
            return []
        return list(self.built.state_dict().items())

    def mutated_parameters(self) -> list[str]:
        return [
            name
            for name, tensor in self._after.items()
            if name in self._state and arrays.to_numpy(tensor).tobytes() != self._state[name]
        ]

    def earlier_changed(self) -> bool:
        return any(arrays.to_numpy(t).tobytes() != raw for t, raw in self._earlier)

    def shown(self, result: Any) -> tuple[dict[str, Any], int]:
        """The reply that shows a value which a call has returned, and the memory that holds it."""
        try:
            self.structure, self._result = _flattened(result)
        except _Unreadable as error:
            return {"status": "unreadable", "notes": [str(error)]}, -1
        outputs, _, fd = self.exported()
        tampering = self._session.tampering()
        reply = {"outputs": outputs, "structure": self.structure, "tampering": tampering}
        return {"status": "answered", **reply}, fd

    def exported(self) -> tuple[list[dict[str, Any]], list[dict[str, Any]], int]:
        """The descriptions of the outputs and of the state asked for, and a descriptor of memory that
        holds their bytes."""
        rows, parts, position = [], [], 0
        asked = self._header.get("state", ())
        state = [(name, self._after[name]) for name in asked if name in self._after]
        for path, leaf in (*self._result, *state):
            scalar = not isinstance(leaf, torch.Tensor)
            tensor = torch.tensor(leaf) if scalar else leaf
            values = np.ascontiguousarray(arrays.to_numpy(tensor))
            rows.append(self._described(path, tensor, position, values.nbytes, scalar))
            parts.append(values)
            position += values.nbytes
        count = len(self._result)
        if not position:
            return rows[:count], rows[count:], -1
        fd = os.memfd_create("adjudge-outputs", os.MFD_CLOEXEC)
        for values in parts:
            # As bytes: numpy has no buffer format for bfloat16 and float8.
            view = memoryview(values.reshape(-1).view(np.uint8)) if values.nbytes else b""  # type: ignore[arg-type]
            while view:
                view = view[os.write(fd, view) :]
        return rows[:count], rows[count:], fd

    def _described(
        self, path: str, tensor: torch.Tensor, start: int, nbytes: int, scalar: bool
    ) -> dict[str, Any]:
        earlier = {_storage(t) for t, _ in self._earlier if t.numel()}
        # A gradient may be its cotangent, or a buffer of the candidate's: autograd copies what it keeps.
        held = [*self._inputs, *self._named_state()] if self._pulled is None else []
        shared = [
            name
            for name, other in held
            if tensor.numel() and other.numel() and _storage(other) == _storage(tensor)
        ]
        return {
            "path": path,
            "dtype": arrays.dtype_name(tensor.dtype),
            "shape": list(tensor.shape),
            "strides": list(tensor.stride()),
            "start": start,
            "nbytes": nbytes,
            "device": str(tensor.device),
            "requires_grad": bool(tensor.requires_grad),
            "aliases": shared,
            "aliases_previous": bool(tensor.numel()) and _storage(tensor) in earlier,
            "scalar": scalar,
        }


def _storage(tensor: torch.Tensor) -> int:
    return tensor.untyped_storage().data_ptr()


def _gradient_leaves(pulled: gradients.Pulled) -> tuple[str, list[tuple[str, Any]]]:
    """As `_flattened`; a missing gradient is "none".

    Raises:
        _Unreadable: what stands for a gradient is no tensor.
    """
    leaves: list[tuple[str, Any]] = []
    for name, gradient in pulled.gradients.items():
        if gradient is None:
            continue
        if not isinstance(gradient, torch.Tensor) or gradient.layout != torch.strided:
            raise _Unreadable(f"the gradient of {name} is a {type(gradient).__name__}")
        leaves.append((f"{GRADIENT}{name}", gradient))
    words = ["none" if g is None else "tensor" for g in pulled.gradients.values()]
    return f"({', '.join(words)})", leaves


def _flattened(result: Any) -> tuple[str, list[tuple[str, Any]]]:
    """The structure in words, and its (path, leaf) pairs.

    Raises:
        _Unreadable: a leaf is neither a tensor nor a number.
    """
    leaves: list[tuple[str, Any]] = []

    def leaf(path: str, value: Any) -> Any:
        if isinstance(value, torch.Tensor):
            if value.layout != torch.strided:
                raise _Unreadable(f"output{path} is a {value.layout} tensor")
            leaves.append((path, value))
            return "tensor"
        if isinstance(value, (bool, int, float)):
            leaves.append((path, value))
            return "number"
        if value is None:
            return "none"
        raise _Unreadable(f"output{path} is a {type(value).__name__}")

    shown = arrays.map_leaves(result, leaf)
    if not leaves:
        raise _Unreadable("nothing was returned" if result is None else "no tensor was returned")
    return str(shown).replace("'", ""), leaves
