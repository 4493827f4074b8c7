"""The schedule for compute capability 10.0, without such a GPU: compiled, and what came of it read.

A machine without nvcc gets the pinned one in an environment of its own; nothing here skips.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import venv
from pathlib import Path

import pytest
import triton

from gated_recurrence.native import build

# The compiler, its two parts, and the headers.
WHEELS = (
    "nvidia-cuda-nvcc==13.0.88",
    "nvidia-nvvm==13.0.88",
    "nvidia-cuda-crt==13.0.88",
    "nvidia-cuda-runtime==13.0.96",
    "nvidia-cuda-cccl==13.0.85",
)
# Steps of 16 of every product of a chunk: forward Q S, the state's and P' U', with a delta rule K S and
# (A' - I) W; backward K dS', P'^T dO and the state's, with a delta rule (A' - I)^T dU and K^T E.
FORWARD, BACKWARD = 8 + 4 + 4, 8 + 4 + 4
PRODUCTS = {"gdn_scans": FORWARD + 8 + 4 + BACKWARD + 4 + 4, "simple_scans": FORWARD + BACKWARD}
KERNELS = 2  # a source: the forward and the reverse scan


def _knows_blackwell(nvcc: str) -> bool:
    listed = subprocess.run([nvcc, "--list-gpu-code"], capture_output=True, text=True, check=False)
    return "sm_100" in listed.stdout.split()


@pytest.fixture(scope="module")
def nvcc(tmp_path_factory: pytest.TempPathFactory) -> str:
    found = build.compiler()
    if found is not None and _knows_blackwell(found):
        return found
    home = tmp_path_factory.mktemp("nvcc")
    venv.create(home, with_pip=True)
    python = home / "bin" / "python"
    subprocess.run([python, "-m", "pip", "install", "-q", *WHEELS], check=True)
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    return str(home / "lib" / version / "site-packages/nvidia/cu13/bin/nvcc")


def compiled(nvcc: str, source: str, kind: str, to: Path) -> str:
    """The file in `kind`, written to `to`; what the compiler said."""
    command = [nvcc, *build.BLACKWELL_FLAGS, f"-{kind}", "-Xptxas", "-v", "-o", str(to)]
    done = subprocess.run(
        [*command, str(build.BLACKWELL / f"{source}.cu")],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout + done.stderr


def disassembled(cubin: Path) -> list[str]:
    """The instructions, with their predicates left out."""
    bundled = Path(triton.__file__).parent / "backends/nvidia/bin/cuobjdump"
    tool = str(bundled) if bundled.exists() else shutil.which("cuobjdump")
    assert tool is not None
    text = subprocess.run(
        [tool, "--dump-sass", cubin], capture_output=True, text=True, check=True
    ).stdout
    return re.findall(r"/\*[0-9a-f]{4,}\*/\s+(?:@!?U?P\w+ )?([A-Z][A-Z0-9_.]+)", text)


@pytest.mark.parametrize("source", build.BLACKWELL_SOURCES)
def test_every_product_is_a_fifth_generation_one_and_nothing_spills(
    nvcc: str, source: str, tmp_path: Path
) -> None:
    cubin = tmp_path / "out.cubin"
    said = compiled(nvcc, source, "cubin", cubin)
    assert "warning" not in said, said
    assert (
        re.findall(r"(\d+) bytes spill stores, (\d+) bytes spill loads", said)
        == [("0", "0")] * KERNELS
    )
    names = [name.split(".")[0] for name in disassembled(cubin)]
    assert names.count("UTCHMMA") == PRODUCTS[source]
    assert not {"HMMA", "HGMMA", "WARPGROUP", "STL", "LDL"} & set(names)
    assert {"LDTM", "STTM", "UTMALDG", "UTMASTG"} <= set(names)


@pytest.mark.parametrize("source", build.BLACKWELL_SOURCES)
def test_tensor_memory_is_taken_once_and_given_back_once(
    nvcc: str, source: str, tmp_path: Path
) -> None:
    file = tmp_path / "out.ptx"
    compiled(nvcc, source, "ptx", file)
    text = file.read_text(encoding="utf-8")
    for instruction in ("alloc", "dealloc", "relinquish_alloc_permit"):
        assert text.count(f"tcgen05.{instruction}.") == KERNELS, instruction
