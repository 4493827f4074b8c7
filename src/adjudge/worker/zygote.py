"""The process that workers are forked from: torch and triton imported once, no task, no tensor op.

    python -m adjudge.worker.zygote FD FOLDER ISOLATION FACE COMPILER

A parent that has run one parallel tensor operation hangs its forked children, so nothing is computed
here. A worker has two ancestors of ours below the zygote. The supervisor keeps the worker's folder
and tells how it ended; the init is process 1 of a process namespace, where the system allows one, so
that its end takes everything the candidate started with it. The worker itself is process 2: process
1 would be deaf to its own signals.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import sys
import tempfile
import time
import traceback
from typing import NoReturn

from adjudge.worker import protocol, sandbox

#: Exit code of a worker whose own code (ours, not the candidate's) failed before it could answer.
BROKEN = 70


def main(arguments: list[str]) -> None:
    fd, folder, isolation, face, compiler = arguments
    channel = socket.socket(fileno=int(fd))
    settings = sandbox.Settings(isolation=isolation, face=face, compiler=compiler == "compiler")
    sandbox.die_with_parent()
    _import_everything()
    layers = sandbox.available(settings)
    protocol.send(channel, {"layers": list(layers)})
    _serve(channel, folder, settings)


def _import_everything() -> None:
    """What a candidate would otherwise wait for: 3 s of torch, 1.2 s of Dynamo at the first op under
    a dispatch mode, triton with its interpreter made faithful."""
    import gc
    import importlib.util

    import numpy  # noqa: F401
    import torch
    import torch._dynamo
    import torch.utils._python_dispatch

    torch.set_num_threads(1)
    if importlib.util.find_spec("triton") is not None:
        from adjudge.worker import interpreter

        interpreter.install()
    import adjudge.worker.child  # noqa: F401

    # Objects that live for ever are kept out of the children's collections and page copies.
    gc.collect()
    gc.freeze()


def _serve(channel: socket.socket, folder: str, settings: sandbox.Settings) -> None:
    children: set[int] = set()
    while True:
        message = protocol.receive(channel)
        if message is None:
            return
        header, fds = message
        if header["do"] == "spawn":
            pid = os.fork()
            if pid == 0:
                channel.close()
                _supervise(fds[0], fds[1], folder, settings)
            children.add(pid)
            protocol.send(channel, {"pid": pid})
        else:
            ending = _ending(int(header["pid"]), children, float(header["grace"]))
            protocol.send(channel, {"ending": ending})
        for number in fds:
            os.close(number)


def _ending(pid: int, children: set[int], grace: float) -> str:
    """How a worker ended, in words; one that is still there after `grace` seconds is killed."""
    if pid not in children:
        return "unknown"
    children.discard(pid)
    deadline = time.monotonic() + grace
    while True:
        done, status = os.waitpid(pid, os.WNOHANG)
        if done or time.monotonic() > deadline:
            break
        time.sleep(0.002)
    if not done:
        os.kill(pid, signal.SIGTERM)
        os.waitpid(pid, 0)
        return "killed"
    if os.WIFSIGNALED(status):
        return f"signal {signal.Signals(os.WTERMSIG(status)).name}"
    return f"exit code {os.WEXITSTATUS(status)}"


def _supervise(channel: int, output: int, root: str, settings: sandbox.Settings) -> NoReturn:
    """Waits for the init and ends as the worker ended."""
    status = BROKEN << 8
    try:
        sandbox.die_with_parent()
        folder = tempfile.mkdtemp(dir=root)
        contained = settings.isolation == "full" and sandbox.enter_namespaces()
        read_end, write_end = os.pipe()
        pid = os.fork()
        if pid == 0:
            _init(channel, output, write_end, folder, contained, settings)
        signal.signal(signal.SIGTERM, lambda *_: os.kill(pid, signal.SIGKILL))
        for fd in (channel, output, write_end):
            os.close(fd)
        os.waitpid(pid, 0)
        told = os.read(read_end, 16)
        status = int(told) if told else signal.SIGKILL
        shutil.rmtree(folder, ignore_errors=True)
    finally:
        _end_like(status)


def _end_like(status: int) -> NoReturn:
    if os.WIFSIGNALED(status):
        number = os.WTERMSIG(status)
        if number not in (signal.SIGKILL, signal.SIGSTOP):
            signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)
    os._exit(os.WEXITSTATUS(status))


def _init(
    channel: int,
    output: int,
    report: int,
    folder: str,
    contained: bool,
    settings: sandbox.Settings,
) -> NoReturn:
    """Reaps what the candidate leaves behind until the worker itself has ended."""
    try:
        sandbox.die_with_parent()
        if contained:
            sandbox.bound_processes()
        worker = os.fork()
        if worker == 0:
            os.close(report)
            _work(channel, output, folder, settings)
        os.close(channel)
        os.close(output)
        while True:
            pid, status = os.wait()
            if pid == worker:
                os.write(report, str(status).encode())
                break
    finally:
        os._exit(0)


def _work(channel: int, output: int, folder: str, settings: sandbox.Settings) -> NoReturn:
    from adjudge.worker import child

    try:
        sandbox.die_with_parent()
        child.serve(channel, output, folder, settings)
    except BaseException:
        with contextlib.suppress(BaseException):
            traceback.print_exc()
    finally:
        os._exit(BROKEN)


if __name__ == "__main__":
    main(sys.argv[1:])
