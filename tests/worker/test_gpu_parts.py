"""What serves workers on a GPU and can be looked at without one."""

from __future__ import annotations

import ctypes
import os
import threading
import time
from pathlib import Path

import numpy as np
import pytest
from torch.utils import cpp_extension

from adjudge.worker import direct_launch, extensions, launch, replies
from adjudge.worker.room import Room


@pytest.mark.parametrize(
    ("kind", "value", "raw"),
    [
        ("i32", -2, b"\xfe\xff\xff\xff"),
        ("i64", 1 << 40, b"\0\0\0\0\0\1\0\0"),
        ("u64", (1 << 64) - 1, b"\xff" * 8),
        ("u1", True, b"\1"),
        ("fp32", 1e300, np.float32(np.inf).tobytes()),
        ("fp32", 0.1, np.float32(0.1).tobytes()),
        ("fp64", 0.1, np.float64(0.1).tobytes()),
        ("fp16", 0.1, np.float16(0.1).tobytes()),
        # 0x3F8CCCCD, cut off after sixteen bits.
        ("bf16", 1.1, b"\x8c\x3f"),
        ("*fp32", None, b"\0" * 8),
        ("*i8", 4096, b"\0\x10" + b"\0" * 6),
    ],
)
def test_arguments_lie_in_memory_as_kernels_expect_them(
    kind: str, value: object, raw: bytes
) -> None:
    pack = direct_launch._packer(kind)
    assert pack is not None
    packed = pack(value, 0)
    assert ctypes.string_at(ctypes.addressof(packed), ctypes.sizeof(packed)) == raw


@pytest.mark.parametrize(
    ("kind", "value", "error"),
    [
        ("i32", 1 << 31, OverflowError),
        ("i32", 1.5, TypeError),
        ("fp16", 1e6, OverflowError),
        ("*fp32", 1.5, TypeError),
    ],
)
def test_arguments_that_do_not_fit_are_refused(
    kind: str, value: object, error: type[Exception]
) -> None:
    pack = direct_launch._packer(kind)
    assert pack is not None
    with pytest.raises(error):
        pack(value, 0)


def test_what_the_stub_does_beyond_a_launch_is_left_to_triton() -> None:
    for kind in ("tensordesc<fp32[16, 16]>", ("*fp32", "i32"), "nvTmaDesc", "i8"):
        assert direct_launch._packer(kind) is None, kind


class Driver:
    """Stands for the driver: notes what is launched."""

    def __init__(self) -> None:
        self.launched: list[tuple[list[int], list[bytes]]] = []

    def cuCtxGetCurrent(self, context: object) -> int:  # noqa: N802
        context._obj.value = 1  # type: ignore[attr-defined]
        return 0

    def cuLaunchKernel(self, function: object, *rest: object) -> int:  # noqa: N802
        numbers = [int(n.value or 0) for n in rest[:7]]  # type: ignore[attr-defined]
        pointers = list(rest[8])  # type: ignore[call-overload]
        self.launched.append((numbers, [ctypes.string_at(p, 4) for p in pointers]))
        return 0


@pytest.fixture
def driver(monkeypatch: pytest.MonkeyPatch) -> Driver:
    stand_in = Driver()
    monkeypatch.setattr(direct_launch, "_driver", lambda: stand_in)
    return stand_in


def launched(grid: tuple[int, int, int], driver: Driver) -> list[tuple[list[int], list[bytes]]]:
    run = direct_launch._Launcher(("*fp32", "i32", "constexpr"))
    run(*grid, 0, 77, (4, 1, 512), None, None, None, 4096, 7, 128)
    return driver.launched


def test_a_launch_passes_the_grid_the_block_and_the_arguments(driver: Driver) -> None:
    ((numbers, arguments),) = launched((3, 2, 1), driver)
    assert numbers == [3, 2, 1, 128, 1, 1, 512]
    # The pointer, the number, and two pointers to scratch memory; constants are compiled in.
    assert arguments == [b"\0\x10\0\0", b"\7\0\0\0", b"\0" * 4, b"\0" * 4]


def test_an_empty_grid_launches_nothing_and_so_does_one_that_overflows(driver: Driver) -> None:
    assert not launched((0, 5, 1), driver)
    assert not launched((1 << 16, 1 << 15, 1), driver)


def test_the_judge_hides_its_gpus_from_itself_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    for before in (None, "2"):
        monkeypatch.delenv("ADJUDGE_VISIBLE_DEVICES", raising=False)
        monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
        if before is not None:
            monkeypatch.setenv("CUDA_VISIBLE_DEVICES", before)
        launch.hide_device()
        launch.hide_device()
        assert os.environ["CUDA_VISIBLE_DEVICES"] == ""
        environment = launch.child_environment()
        assert environment.get("CUDA_VISIBLE_DEVICES") == before
        assert "ADJUDGE_VISIBLE_DEVICES" not in environment


def test_whoever_is_alone_waits_for_runs_and_keeps_out_new_ones(tmp_path: Path) -> None:
    room, order = Room(str(tmp_path / "room")), []

    def run(name: str, seconds: float) -> None:
        with room.shared():
            order.append(f"{name} in")
            time.sleep(seconds)
            order.append(f"{name} out")

    def alone() -> None:
        with room.alone():
            order.append("alone")

    first = threading.Thread(target=run, args=("first", 0.5))
    second = threading.Thread(target=run, args=("second", 0.0))
    waiting = threading.Thread(target=alone)
    for thread in (first, waiting, second):
        thread.start()
        time.sleep(0.1)
    for thread in (first, waiting, second):
        thread.join(10)
    assert order == ["first in", "first out", "alone", "second in", "second out"]


def test_runs_share_the_room(tmp_path: Path) -> None:
    room = Room(str(tmp_path / "room"))
    both = threading.Barrier(2)

    def run() -> None:
        with room.shared():
            both.wait(10)

    threads = [threading.Thread(target=run) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    assert not both.broken


def test_what_a_compiler_says_comes_first() -> None:
    message = (
        "Error building extension 'x': [1/3] /usr/local/cuda/bin/nvcc -ccbin gcc -DNAME=x -c "
        "/tmp/adjudge-1/x/cuda.cu -o cuda.cuda.o\nFAILED: cuda.cuda.o\n"
        '/tmp/adjudge-1/x/cuda.cu(4): error: identifier "missing" is undefined\n'
        '1 error detected in the compilation of "/tmp/adjudge-1/x/cuda.cu".\n'
    )
    raised = {
        "type": "RuntimeError",
        "message": message,
        "traceback": "",
        "phase": "load",
        "from_candidate": True,
    }
    found = replies.raised({"raised": raised})
    assert found is not None
    assert found.message.splitlines()[0] == 'cuda.cu(4): error: identifier "missing" is undefined'
    assert "/tmp" not in found.message
    plain = replies.raised({"raised": {**raised, "message": "another error: /tmp/x/cuda.cu"}})
    assert plain is not None
    assert plain.message == "another error: /tmp/x/cuda.cu"


MAKING = "torch::Tensor f(torch::Tensor x) { return torch::empty_like(x); }"


@pytest.mark.parametrize(
    ("source", "headers"),
    [(MAKING, extensions.HEADERS_FEW), ("at::conv2d(x, w)", extensions.HEADERS)],
)
def test_extensions_are_built_with_short_headers_first(
    source: str, headers: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    searched: list[str | None] = []

    def build(folder: str) -> None:
        searched.append(os.environ.get("CPATH"))
        if folder == "needs more" and len(searched) == 1:
            raise RuntimeError("Error building extension")

    monkeypatch.setattr(cpp_extension, "_run_ninja_build", build)
    monkeypatch.setenv("CPATH", "/theirs")
    extensions.hasten(source)
    extensions.hasten(source)
    short = f"{headers}:/theirs"
    cpp_extension._run_ninja_build("simple")
    assert searched == [short]
    searched.clear()
    cpp_extension._run_ninja_build("needs more")
    assert searched == [short, "/theirs"]
    assert (headers / "torch" / "extension.h").is_file()


def test_only_texts_that_make_tensors_alone_do_without_declared_operations() -> None:
    assert extensions.headers_for(MAKING) == extensions.HEADERS_FEW
    asks = MAKING.replace("empty_like(x)", "empty_like(x, x.options().requires_grad(true))")
    assert extensions.headers_for(asks) == extensions.HEADERS
    assert extensions.headers_for(MAKING.replace("empty_like", "relu")) == extensions.HEADERS
