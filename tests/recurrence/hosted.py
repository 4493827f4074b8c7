"""The native kernels on the CPU: their sources, compiled by g++ over `host/`, behind the same Python.

What is in `sm90/ptx.cuh` and `sm90/wgmma.cuh`, one instruction a function, `host/` has in C++; a
thread is a coroutine. So a kernel's addresses, fragments, barriers and roundings run as they are
written, and what only a GPU shows is left to it: races, missing fences, what the compiler makes of it.
"""

from __future__ import annotations

import contextlib
import ctypes
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from unittest import mock

import torch

from gated_recurrence.native import build, driver
from gated_recurrence.native import gated_delta_rule as native
from gated_recurrence.native.kernels import Family, Kernel

HOST = Path(__file__).parent / "host"
SHARED = "extern __shared__ __align__(1024) char shared[];"
HERE = "char* shared = machine::current->block->shared;"
MULTIPROCESSORS = 4


class Map(ctypes.Structure):
    """`Map` of host/machine.h."""

    _fields_ = (
        ("base", ctypes.c_void_p),
        ("sizes", ctypes.c_uint64 * 4),
        ("strides", ctypes.c_uint64 * 3),
        ("element", ctypes.c_uint32),
        ("swizzled", ctypes.c_uint32),
        ("box", ctypes.c_uint32 * 4),
    )


def _encode(
    address: int,
    sizes: tuple[int, ...],
    strides: tuple[int, ...],
    box: tuple[int, ...],
    dtype: torch.dtype = torch.bfloat16,
) -> driver.TensorMap:
    words = Map(
        *(address, tuple(sizes), tuple(strides), dtype.itemsize),
        *(int(dtype == torch.bfloat16), tuple(box)),
    )
    size = ctypes.sizeof(driver.TensorMap)
    return driver.TensorMap.from_buffer_copy(bytes(words).ljust(size, b"\0"))


def compiled(family: Family, folder: Path) -> dict[str, ctypes.CDLL]:
    """The libraries of a family's sources, built in `folder`."""
    kernels = [
        *(family.prepare, family.forward, family.states, family.gradients),
        *([] if family.gates is None else [family.gates]),
    ]
    for file in build.FOLDER.glob("*.cu*"):
        copied = HOST / file.name
        text = copied.read_text() if copied.exists() else file.read_text().replace(SHARED, HERE)
        (folder / file.name).write_text(text)
    defines = [flag for flag in build.FLAGS if flag.startswith("-D")]
    running = {}
    for source in dict.fromkeys(kernel.source for kernel in kernels):
        launches = [
            f'extern "C" int run_{k.name}(const void* parameters, unsigned blocks) {{\n'
            f"  return machine::launch({k.name}, parameters, blocks, {k.threads}, {_cluster(k)});\n}}\n"
            for k in kernels
            if k.source == source
        ]
        (folder / f"{source}.cpp").write_text(
            f'#include "ptx.cuh"\n#include "{source}.cu"\n{"".join(launches)}'
        )
        command = [
            *("g++", "-std=c++17", "-O1", "-w", "-shared", "-fPIC", *defines),
            *("-I", str(HOST), "-o", str(folder / f"{source}.so"), str(folder / f"{source}.cpp")),
        ]
        running[source] = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    found = {}
    for source, process in running.items():
        _, words = process.communicate()
        assert process.returncode == 0, words
        found[source] = ctypes.CDLL(str(folder / f"{source}.so"))
    return found


def _cluster(kernel: Kernel) -> int:
    """The blocks of a cluster, from the source's own words."""
    text = "".join(path.read_text() for path in build.FOLDER.glob("*.cu*"))
    head = text.split(f" {kernel.name}(const")[0].rsplit("__global__", 1)[1]
    for macro in ("PREPARE_BOUNDS", "SCAN_BOUNDS", "GRADIENTS_BOUNDS"):
        if macro in head:
            head += text.split(f"#define {macro}")[1].split("\n")[0]
    return 2 if "__cluster_dims__(2, 1, 1)" in head else 1


@contextlib.contextmanager
def on_the_host(libraries: dict[str, ctypes.CDLL]) -> Iterator[None]:
    """While this is open, launches of these kernels on CPU tensors run here."""

    def launch(
        kernel: Kernel, blocks: int, parameters: int, device: torch.device, stream: int
    ) -> None:
        run = getattr(libraries[kernel.source], f"run_{kernel.name}")
        assert not blocks or run(ctypes.c_void_p(parameters), ctypes.c_uint(blocks)) == 0

    with (
        mock.patch.object(driver, "_encode", _encode),
        mock.patch.object(driver, "enter", return_value=0),
        mock.patch.object(driver, "multiprocessors", return_value=MULTIPROCESSORS),
        mock.patch.object(native, "launch", launch),
    ):
        yield


def available() -> bool:
    return shutil.which("g++") is not None
