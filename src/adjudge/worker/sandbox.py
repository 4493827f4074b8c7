"""What a candidate's process may do: nothing but compute.

Layers, from the inside out: Landlock (files, TCP, signals), network and process namespaces (UDP,
detached process trees), resource limits. `prove` tries to break each one.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import resource
import signal
import socket
import sys
import sysconfig
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

_CLONE_NEWNET, _CLONE_NEWPID, _CLONE_NEWIPC, _CLONE_NEWUSER = (
    0x40000000, 0x20000000, 0x08000000, 0x10000000,
)  # fmt: skip
_PR_SET_PDEATHSIG = 1
#: Address space a worker may add to what it was forked with.
MEMORY = 8 << 30
#: "far" layouts map a sparse region of up to this much beside it.
SPARSE = 26 << 30
FILE_SIZE = 4 << 30
OPEN_FILES = 256


@dataclass(frozen=True, slots=True)
class Settings:
    #: "full" or "none".
    isolation: str = "full"
    #: "cuda" or "cpu": which device tensors claim to be on.
    face: str = "cuda"
    #: Whether a compiler may be started (`torch.compile`).
    compiler: bool = False
    #: "interpret" or "cuda": where candidates run.
    runner: str = "interpret"
    #: Part of the device's memory that one worker's tensors may take.
    share: float = 1.0

    @property
    def starts_programs(self) -> bool:
        """Triton starts an assembler and a C compiler wherever it really compiles."""
        return self.compiler or self.runner == "cuda"


def available(settings: Settings) -> tuple[str, ...]:
    """Names of the layers that this machine can put around a worker."""
    if settings.isolation == "none":
        return ()
    layers = ["rlimits"]
    if _landlock_version() > 0:
        layers.append("landlock")
    if in_child(_namespaces_work):
        layers.append("namespaces")
    return tuple(layers)


def _landlock_version() -> int:
    try:
        from py_landlock import Landlock

        return int(Landlock(strict=False).abi_version)
    except Exception:
        return 0


def _namespaces_work() -> bool:
    return enter_namespaces()


def in_child(check: Callable[[], bool]) -> bool:
    """The answer of `check` in a process of its own; False if it dies or raises."""
    pid = os.fork()
    if pid == 0:
        code = 1
        with contextlib.suppress(BaseException):
            code = 0 if check() else 1
        os._exit(code)
    return os.waitpid(pid, 0)[1] == 0


def die_with_parent() -> None:
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def enter_namespaces(*, processes: bool = True) -> bool:
    """New network, IPC and (for children) process namespaces; False if the system refuses.

    Args:
        processes: also one of processes. A GPU's driver does not start in one.
    """
    libc = ctypes.CDLL(None)
    wanted = _CLONE_NEWNET | _CLONE_NEWIPC | (_CLONE_NEWPID if processes else 0)
    return libc.unshare(wanted) == 0 or libc.unshare(wanted | _CLONE_NEWUSER) == 0  # type: ignore[no-any-return]


def restrict(settings: Settings, folders: Sequence[Path]) -> None:
    """Closes the door: limits, then Landlock. `folders` stay readable and writable."""
    if settings.isolation == "none":
        return
    _limit(memory=settings.runner != "cuda")
    with contextlib.suppress(ImportError):
        _landlock(settings, folders)


def _limit(*, memory: bool) -> None:
    """Limits of the process; not of its memory where a GPU is used, whose driver reserves address space
    by the terabyte."""
    if memory:
        # Fields of statm, in pages: all address space comes first, private data sixth (proc(5)).
        pages = [int(word) for word in Path("/proc/self/statm").read_text().split()]
        space, data = pages[0] * resource.getpagesize(), pages[5] * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (space + MEMORY + SPARSE,) * 2)
        resource.setrlimit(resource.RLIMIT_DATA, (data + MEMORY,) * 2)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_FSIZE, (FILE_SIZE,) * 2)
    resource.setrlimit(resource.RLIMIT_NOFILE, (OPEN_FILES,) * 2)


def _readable(settings: Settings) -> list[str]:
    """Python's own library and the packages on its path: what imports and `inspect` read."""
    paths = sysconfig.get_paths()
    found = {paths[key] for key in ("stdlib", "platstdlib", "purelib", "platlib")}
    found |= {entry for entry in sys.path if entry and os.path.isdir(entry)}
    found |= {"/usr/lib", "/lib", "/lib64"}
    if settings.starts_programs:
        found |= {"/usr", "/bin", "/etc", "/proc", "/opt", sys.prefix, sys.base_prefix}
    if settings.runner == "cuda":
        found |= {"/sys", "/run", "/sbin"}
    return sorted(path for path in found if os.path.isdir(path))


def _landlock(settings: Settings, folders: Sequence[Path]) -> None:
    from py_landlock import AccessFs, Landlock

    rules = Landlock(strict=False)
    rules.allow_read(*_readable(settings))
    for folder in folders:
        rules.allow_read_write(str(folder))
        # Moving a file from one folder to another inside it, as compile caches do.
        rules.add_path_rule(str(folder), access=AccessFs.REFER)
    # Rules for single files may not carry the rights of folders.
    rules.add_path_rule("/dev/null", access=AccessFs.READ_FILE | AccessFs.WRITE_FILE)
    rules.add_path_rule("/dev/urandom", access=AccessFs.READ_FILE)
    if settings.starts_programs:
        programs = {"/usr", "/bin", "/sbin", "/lib", "/lib64", "/opt", sys.prefix, sys.base_prefix}
        rules.allow_execute(*sorted(path for path in programs if os.path.isdir(path)))
    rules.apply()


@dataclass(frozen=True, slots=True)
class Proof:
    layer: str
    held: bool
    detail: str


def prove() -> list[Proof]:
    """Tries to break each layer from inside a restricted process."""
    attempts: list[tuple[str, str, Callable[[Path], bool]]] = [
        ("landlock", "write outside its own folder", _writes_outside),
        ("landlock", "read the home folder", _reads_home),
        ("landlock", "open a TCP connection", _connects),
        ("namespaces", "send a UDP packet", _sends_udp),
        ("namespaces", "signal the judge", _signals_parent),
        ("rlimits", "allocate past the memory limit", _allocates),
    ]
    return [Proof(layer, not _attempt(action), words) for layer, words, action in attempts]


def _attempt(action: Callable[[Path], bool]) -> bool:
    """True if the action succeeded inside the sandbox, which it must not."""
    with tempfile.TemporaryDirectory() as folder:
        pid = os.fork()
        if pid == 0:
            code = 1
            with contextlib.suppress(BaseException):
                enter_namespaces()
                inner = os.fork()
                if inner == 0:
                    code = 1
                    with contextlib.suppress(BaseException):
                        restrict(Settings(), [Path(folder)])
                        code = 0 if action(Path(folder)) else 1
                    os._exit(code)
                code = os.waitstatus_to_exitcode(os.waitpid(inner, 0)[1])
            os._exit(0 if code == 0 else 1)
        return os.waitpid(pid, 0)[1] == 0


def _writes_outside(folder: Path) -> bool:
    path = folder.parent / f"adjudge-proof-{os.getpid()}"
    path.write_text("x")
    path.unlink()
    return True


def _reads_home(folder: Path) -> bool:
    return bool(os.listdir(os.path.expanduser("~"))) or True


def _connects(folder: Path) -> bool:
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        server.listen()
        with socket.create_connection(server.getsockname(), timeout=1):
            return True


def _sends_udp(folder: Path) -> bool:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as packet:
        return packet.sendto(b"x", ("192.0.2.1", 9)) == 1


def _signals_parent(folder: Path) -> bool:
    parent = os.getppid()
    if parent == 0:
        return False
    os.kill(parent, 0)
    return True


def _allocates(folder: Path) -> bool:
    return len(bytearray(MEMORY + (1 << 30))) > 0
