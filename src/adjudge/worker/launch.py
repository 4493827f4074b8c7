"""Starts the process that workers are forked from. Free of torch, so that it can boot while the judge
imports its own."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys

from adjudge.closing import Closing

_VISIBLE, _KEPT = "CUDA_VISIBLE_DEVICES", "ADJUDGE_VISIBLE_DEVICES"


def hide_device() -> None:
    """Takes the GPUs from this process, and leaves them to those that it launches.

    A judge needs none, and a process that has seen one cannot fork: torch's backward passes start a
    thread for each. To be called before torch is asked for devices.
    """
    os.environ.setdefault(_KEPT, os.environ.get(_VISIBLE, "all"))
    os.environ[_VISIBLE] = ""


def child_environment() -> dict[str, str]:
    """Ours, with the same packages on its path, and nothing decided about Triton's interpreter."""
    environment = {k: v for k, v in os.environ.items() if k != "TRITON_INTERPRET"}
    kept = environment.pop(_KEPT, None)
    if kept is not None:
        environment[_VISIBLE] = kept
    if kept == "all":
        del environment[_VISIBLE]
    environment["PYTHONPATH"] = os.pathsep.join(p for p in sys.path if p)
    return environment


class Launch(Closing):
    """The process and our end of its channel, from the moment it is started.

    Args:
        isolation: "full" or "none".
        face: "cuda" answers candidates as a GPU would; "cpu" leaves torch as it is.
        allow_compiler: lets candidates start a compiler.
        runner: "interpret" or "cuda".
        share: part of the device's memory that one worker's tensors may take.
    """

    def __init__(
        self,
        *,
        isolation: str = "full",
        face: str = "cuda",
        allow_compiler: bool = False,
        runner: str = "interpret",
        share: float = 1.0,
    ) -> None:
        self.channel, theirs = socket.socketpair()
        environment = {**child_environment(), "PYTORCH_JIT": "0"}
        if runner == "interpret":
            environment["TRITON_INTERPRET"] = "1"
        if allow_compiler:
            # Threads that Inductor leaves behind would be taken for the candidate's own.
            environment["TORCHINDUCTOR_COMPILE_THREADS"] = "1"
            # The processor's own word is enough: a compiled test of it costs each worker 5 s.
            environment["TORCHINDUCTOR_VEC_ISA_OK"] = "1"
            # A configuration chosen by its time on this device, and with it the order of a sum, would
            # differ from one process to the next.
            environment["TORCHINDUCTOR_DETERMINISTIC"] = "1"
        command = [sys.executable, "-P", "-m", "adjudge.worker.zygote", str(theirs.fileno())]
        self.isolation = isolation
        command += [isolation, face, "compiler" if allow_compiler else "no-compiler"]
        command += [runner, str(share)]
        self._process = subprocess.Popen(
            command,
            pass_fds=[theirs.fileno()],
            env=environment,
            stdin=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
        theirs.close()

    def last_words(self) -> str:
        """What the dead process wrote on its standard error."""
        stream = self._process.stderr
        return stream.read().decode(errors="replace")[-2000:] if stream is not None else ""

    def close(self) -> None:
        """Ends the process and everything forked from it. Does nothing the second time."""
        self.channel.close()
        if self._process.stderr is not None:
            self._process.stderr.close()
        with contextlib.suppress(ProcessLookupError):
            if self._process.returncode is None:
                os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
