"""The process that workers are forked from: torch and triton imported once, no task, no tensor op.

    python -m adjudge.worker.zygote FD ISOLATION FACE COMPILER RUNNER SHARE

A parent that has run one parallel tensor operation hangs its forked children, so nothing is computed
here. Each worker sits in a process-identifier namespace of its own where the system allows one: its
supervisor (the outer fork) waits for it and ends the way it ended, and killing the supervisor takes
everything the candidate started with it.
"""

from __future__ import annotations

import contextlib
import gc
import importlib.util
import os
import select
import signal
import socket
import sys
from typing import Any, NoReturn

from adjudge.worker import protocol, sandbox


def main(arguments: list[str]) -> None:
    fd, isolation, face, compiler, runner, share = arguments
    channel = socket.socket(fileno=int(fd))
    settings = sandbox.Settings(
        isolation=isolation,
        face=face,
        compiler=compiler == "compiler",
        runner=runner,
        share=float(share),
    )
    _import_everything(runner)
    layers = sandbox.available(settings)
    device = "cuda:0" if "cuda" in (face, runner) else "cpu"
    gpu = _gpu() if runner == "cuda" else {}
    missing = "no GPU that torch can use" if runner == "cuda" and not gpu else ""
    _keep()
    protocol.send(channel, {"layers": list(layers), "device": device, "missing": missing, **gpu})
    _serve(channel, settings)


def _gpu() -> dict[str, Any]:
    """What is said of the GPU, nothing if there is none; Triton is made ready for it."""
    from adjudge.worker.cuda import find_device

    found = find_device()
    if found is None:
        return {}
    if importlib.util.find_spec("triton") is not None:
        from adjudge.worker.warm import warm

        warm(found.capability)
    return {"model": found.name, "memory": found.memory}


def _keep() -> None:
    """Objects that live for ever are kept out of the children's collections and page copies."""
    gc.collect()
    gc.freeze()


def _import_everything(runner: str) -> None:
    """What a candidate would otherwise wait for: 3 s of torch, 1.2 s of Dynamo at the first op under
    a dispatch mode, triton with its interpreter made faithful."""
    import numpy  # noqa: F401
    import torch
    import torch._dynamo
    import torch.utils._python_dispatch

    torch.set_num_threads(1)
    # Reads /proc/cpuinfo, which a restricted worker cannot: it would then fall back to plain kernels
    # whose last bits are not the judge's.
    torch.backends.cpu.get_cpu_capability()
    if importlib.util.find_spec("triton") is not None:
        if runner == "interpret":
            from adjudge.worker import interpreter

            interpreter.install()
        else:
            import triton  # noqa: F401
    with contextlib.suppress(ImportError):
        # Torch's compiler may draw progress bars, whose thread would stay behind in every worker.
        importlib.import_module("tqdm").tqdm.monitor_interval = 0
    if runner == "cuda":
        # Most of what importing torch's builder of extensions takes; that one itself would start CUDA.
        with contextlib.suppress(ImportError):
            importlib.import_module("setuptools")
    import adjudge.worker.child  # noqa: F401


def _serve(channel: socket.socket, settings: sandbox.Settings) -> None:
    """Answers requests until the judge hangs up; others that it has let in may hang up before."""
    channels = [channel]
    children = _Children()
    while True:
        for asking in select.select(channels, [], [])[0]:
            message = protocol.receive(asking)
            if message is None and asking is channel:
                return
            if message is None:
                channels.remove(asking)
                asking.close()
                continue
            header, fds = message
            what = header["do"]
            if what == "listen":
                channels.append(socket.socket(fileno=fds.pop()))
            elif what == "spawn":
                pid = os.fork()
                if pid == 0:
                    for each in channels:
                        each.close()
                    _supervise(fds[0], fds[1], header["cache"], header["home"], settings)
                children.add(pid)
                protocol.send(asking, {"pid": pid})
            elif what == "forget":
                children.forget(int(header["pid"]))
            elif what == "settle":
                children.settle()
                protocol.send(asking, {})
            else:
                protocol.send(asking, {"ending": children.ending(int(header["pid"]))})
            for number in fds:
                os.close(number)


class _Children:
    """The supervisors of workers, until each is waited for."""

    def __init__(self) -> None:
        self._living: set[int] = set()
        #: Killed, and nobody asks how they end: a context takes a while to go.
        self._dying: set[int] = set()

    def add(self, pid: int) -> None:
        self._living.add(pid)
        self._dying -= {p for p in self._dying if os.waitpid(p, os.WNOHANG)[0]}

    def forget(self, pid: int) -> None:
        if pid in self._living:
            self._living.remove(pid)
            self._dying.add(pid)

    def settle(self) -> None:
        """Waits for those that are dying: what they held is free then."""
        for pid in self._dying:
            os.waitpid(pid, 0)
        self._dying.clear()

    def ending(self, pid: int) -> str:
        """How the process ended, in words; waits for it."""
        if pid not in self._living:
            return "unknown"
        self._living.remove(pid)
        _, status = os.waitpid(pid, 0)
        if os.WIFSIGNALED(status):
            return f"signal {signal.Signals(os.WTERMSIG(status)).name}"
        return f"exit code {os.WEXITSTATUS(status)}"


def _supervise(
    channel: int, output: int, cache: str, home: str, settings: sandbox.Settings
) -> NoReturn:
    """Runs the worker in a namespace of its own and ends as it ended."""
    try:
        sandbox.die_with_parent()
        if settings.isolation == "full" and settings.runner != "cuda":
            sandbox.enter_namespaces()
        pid = os.fork()
        if pid == 0:
            _work(channel, output, cache, home, settings)
        os.close(channel)
        os.close(output)
        _, status = os.waitpid(pid, 0)
        if os.WIFSIGNALED(status):
            number = os.WTERMSIG(status)
            signal.signal(number, signal.SIG_DFL) if number not in (9, 19) else None
            os.kill(os.getpid(), number)
        os._exit(os.WEXITSTATUS(status))
    finally:
        os._exit(70)


def _work(channel: int, output: int, cache: str, home: str, settings: sandbox.Settings) -> NoReturn:
    from adjudge.worker import child

    try:
        sandbox.die_with_parent()
        child.serve(channel, output, cache, home, settings)
    except BaseException:
        import traceback

        traceback.print_exc()
        sys.stderr.flush()
    finally:
        os._exit(70)


if __name__ == "__main__":
    main(sys.argv[1:])
