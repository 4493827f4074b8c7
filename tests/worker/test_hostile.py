"""Candidates that misbehave: each is one observation, and the judge goes on."""

from __future__ import annotations

import os
import textwrap
import time
from pathlib import Path

import numpy as np
import pytest

from adjudge.observation import Observation, Status
from adjudge.task import Candidate
from adjudge.worker import replies
from adjudge.worker.client import Call, RunRequest, TensorImage, Zygote
from adjudge.worker.protocol import ALIGN, GUARD

X = np.arange(8, dtype=np.float32)


def run(zygote: Zygote, body: str, *, timeout: float = 5.0, top: str = "") -> Observation:
    source = "import os, sys, time\nimport torch\n" + textwrap.dedent(top) + "\n"
    source += "class ModelNew(torch.nn.Module):\n    def forward(self, x):\n"
    source += textwrap.indent(textwrap.dedent(body), " " * 8)
    worker = zygote.spawn()
    try:
        reply = worker.load(Candidate(name="hostile", source=source, entry="ModelNew"))
        if reply.observation is not None:
            return reply.observation
        call = Call(args=(TensorImage.plain(X, "float32"),))
        return worker.run(RunRequest(calls=(call,)), timeout=timeout)
    finally:
        worker.close()


def test_an_honest_candidate_answers(zygote: Zygote) -> None:
    observation = run(zygote, "return x + 1")
    assert observation.status is Status.ANSWERED
    assert np.array_equal(observation.outputs[0].data, X + 1)
    assert not observation.tampering


@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "float8_e4m3fn", "bool", "complex64"])
def test_outputs_of_every_dtype_arrive_as_they_are(zygote: Zygote, dtype: str) -> None:
    observation = run(zygote, f"return x.to(torch.{dtype})")
    output = observation.outputs[0]
    assert output.dtype == dtype
    assert np.array_equal(
        output.data.astype(np.complex64), X.astype(bool) if dtype == "bool" else X
    )


def test_a_fault_of_the_worker_is_not_the_candidates(zygote: Zygote) -> None:
    body = "import adjudge.worker.child as ours\nours._Run.exported = lambda run: 1 / 0\nreturn x"
    observation = run(zygote, body)
    assert observation.status is Status.UNSUPPORTED
    assert "ZeroDivisionError" in observation.notes[0]


@pytest.mark.parametrize(
    ("body", "status"),
    [
        ("time.sleep(60)", Status.HUNG),
        ("while True: pass", Status.HUNG),
        ("os._exit(0)", Status.EXITED),
        ("sys.exit(0)", Status.EXITED),
        ("os.abort()", Status.CRASHED),
        ("import ctypes; ctypes.string_at(0)", Status.CRASHED),
        ("raise ValueError('no')", Status.RAISED),
        ("raise KeyboardInterrupt", Status.RAISED),
        ("return None", Status.UNREADABLE),
        ("return object()", Status.UNREADABLE),
        ("return 'right'", Status.UNREADABLE),
        ("return x.to_sparse()", Status.UNREADABLE),
        ("return lambda: x", Status.UNREADABLE),
        ("def f(): return f()\nreturn f()", Status.RAISED),
    ],
)
def test_each_ending_has_a_status(zygote: Zygote, body: str, status: Status) -> None:
    assert run(zygote, body, timeout=3.0).status is status


def test_ten_gigabytes_are_refused(zygote: Zygote) -> None:
    observation = run(zygote, "return torch.ones(10 << 28)", timeout=20.0)
    assert observation.status in (Status.RAISED, Status.MALFORMED, Status.CRASHED)


def test_a_flood_of_output_is_bounded(zygote: Zygote) -> None:
    body = "for _ in range(20000): print('x' * 1000)\nreturn x"
    observation = run(zygote, body, timeout=20.0)
    assert observation.status is Status.ANSWERED
    assert len(observation.stdout) <= 32_768


def test_forks_do_not_outlive_the_worker(zygote: Zygote) -> None:
    body = """
        for _ in range(8):
            if os.fork() == 0:
                os.setsid()
                time.sleep(600)
        return x
    """
    observation = run(zygote, body)
    # Forking is refused or seen; whatever it is, nothing is left behind.
    assert observation.status in (Status.ANSWERED, Status.RAISED)
    time.sleep(0.3)
    left = [
        pid.name
        for pid in Path("/proc").iterdir()
        if pid.name.isdigit() and _command(pid).startswith("hostile-sleeper")
    ]
    assert not left


def _command(pid: Path) -> str:
    try:
        return (pid / "comm").read_text()
    except OSError:
        return ""


@pytest.mark.parametrize(
    "body",
    [
        "open('/etc/passwd').read()",
        "open(os.path.expanduser('~root') + '/x', 'w').write('x')",
        "open('/tmp/adjudge-escape', 'w').write('x')",
        "os.listdir('/')",
        "import socket; socket.create_connection(('127.0.0.1', 9), timeout=1)",
        "import socket; s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); "
        "s.sendto(b'x', ('127.0.0.1', 9)); s.connect(('192.0.2.1', 9)); s.send(b'x')",
        "import subprocess; subprocess.run(['/bin/true'], check=True)",
        "os.kill(os.getppid(), 9); time.sleep(0.2); assert os.getppid() != 0",
    ],
)
def test_the_machine_is_out_of_reach(zygote: Zygote, body: str) -> None:
    if len(zygote.layers) < 3:
        pytest.skip("this system refuses a layer of the sandbox")
    observation = run(zygote, body.replace("; ", "\n") + "\nreturn x")
    assert observation.status is not Status.ANSWERED or observation.tampering, observation
    assert not Path("/tmp/adjudge-escape").exists()


def test_the_judge_answers_after_all_of_that(zygote: Zygote) -> None:
    run(zygote, "os._exit(0)")
    assert run(zygote, "return x").status is Status.ANSWERED


@pytest.mark.parametrize(
    ("top", "body"),
    [
        ("import time\ntime.perf_counter = lambda: 0.0", "return x"),
        ("", "torch.allclose = lambda *a, **k: True\nreturn x"),
        ("", "torch.cuda.synchronize = lambda *a: None\nreturn x"),
        ("", "torch.Tensor.__eq__ = lambda a, b: True\nreturn x"),
        ("import builtins", "builtins.abs = lambda v: 0\nreturn x"),
        ("", "class Lazy(torch.Tensor): pass\nreturn x.as_subclass(Lazy)"),
        ("import threading", "threading.Thread(target=time.sleep, args=(9,)).start()\nreturn x"),
        ("", "torch.cuda.Event.elapsed_time = lambda *a: 0.0\nreturn x"),
        ("import _thread", "_thread.start_new_thread(time.sleep, (9,))\nreturn x"),
        ("import signal", "signal.setitimer(signal.ITIMER_REAL, 9)\nreturn x"),
        ("from adjudge import arrays\narrays.to_numpy = arrays.to_numpy.__call__", "return x"),
        (
            "from adjudge.worker import child\nchild._Run.earlier_changed = lambda *a: False",
            "return x",
        ),
    ],
)
def test_tampering_is_reported(zygote: Zygote, top: str, body: str) -> None:
    assert run(zygote, body, top=top).tampering


def test_inputs_stay_private_to_a_run(zygote: Zygote) -> None:
    observation = run(zygote, "x.mul_(2)\nreturn x.clone()")
    assert observation.mutated_inputs == ("args[0]",)
    assert np.array_equal(X, np.arange(8, dtype=np.float32))


def test_a_write_past_the_input_changes_a_guard(zygote: Zygote) -> None:
    body = "torch.as_strided(x, (12,), (1,))[10] = 7\nreturn x.clone()"
    observation = run(zygote, body)
    assert observation.status is Status.RAISED or observation.faults


def test_memory_that_was_never_written_holds_the_poison(zygote: Zygote) -> None:
    source = "import torch\nclass ModelNew(torch.nn.Module):\n"
    source += "    def forward(self, x):\n        return torch.empty(1000)\n"
    worker = zygote.spawn()
    worker.load(Candidate(name="lazy", source=source, entry="ModelNew"))
    call = Call(args=(TensorImage.plain(X, "float32"),))
    for fill, holds in (("nan", np.isnan), ("finite", np.isfinite)):
        observation = worker.run(RunRequest(calls=(call,), fill=fill), timeout=5.0)
        values = observation.outputs[0].data
        assert holds(values).all()
        assert (values != 0).all()
    worker.close()


@pytest.mark.parametrize("memory", ["x", "torch.empty(8)", "torch.zeros_like(x)"])
def test_a_displaced_run_has_its_memory_elsewhere(memory: str, zygote: Zygote) -> None:
    """Workers are forks of one process: without it a pointer is the same in each."""
    source = "import torch\nclass ModelNew(torch.nn.Module):\n    def forward(self, x):\n"
    source += f"        return torch.tensor({memory}.data_ptr())\n"
    call = Call(args=(TensorImage.plain(X, "float32"),))
    found = {}
    for displaced in (False, True):
        worker = zygote.spawn()
        worker.load(Candidate(name="seed", source=source, entry="ModelNew"))
        observation = worker.run(RunRequest(calls=(call,), displaced=displaced), timeout=5.0)
        found[displaced] = int(observation.outputs[0].data)
        worker.close()
    assert all(address % ALIGN == 0 for address in found.values())
    assert found[False] // GUARD != found[True] // GUARD


def test_an_exception_named_like_ours_is_the_candidates(zygote: Zygote) -> None:
    top = "class Unsupported(Exception): pass\nUnsupported.__module__ = 'adjudge.worker'"
    assert run(zygote, "raise Unsupported('no')", top=top).status is Status.RAISED


def test_a_claim_of_time_is_bounded_by_our_clock(zygote: Zygote) -> None:
    assert 0 <= run(zygote, "return x + 1").seconds < 5


ANSWER = {
    "status": "answered",
    "structure": "tensor",
    "outputs": [
        {
            "path": "", "dtype": "float32", "shape": [2], "strides": [1], "start": 0, "nbytes": 8,
            "device": "cpu", "requires_grad": False, "aliases": [], "aliases_previous": False,
            "scalar": False,
        }
    ],
}  # fmt: skip


def test_a_well_formed_reply_is_read(tmp_path: Path) -> None:
    (tmp_path / "out").write_bytes(np.array([1, 2], dtype=np.float32).tobytes())
    fd = os.open(tmp_path / "out", os.O_RDONLY)
    found = replies.observation(ANSWER, [fd])
    os.close(fd)
    assert np.array_equal(found.outputs[0].data, [1, 2])


@pytest.mark.parametrize(
    "change",
    [
        {"faults": [{"kind": "load", "tensor": "x", "offset": float("inf")}]},
        {"launches": [{"kernel": "k", "grid": [1], "constants": [["B", float("inf")]]}]},
        {"structure": "(tensor, tensor)"},
        {"structure": "none"},
        {"outputs": [{**ANSWER["outputs"][0], "start": 2**70}]},  # type: ignore[index]
        {"outputs": [{**ANSWER["outputs"][0], "start": 2**63 - 1}]},  # type: ignore[index]
        {"outputs": [{**ANSWER["outputs"][0], "shape": [-2]}]},  # type: ignore[index]
        {"state": [{**ANSWER["outputs"][0], "path": "weight"}]},  # type: ignore[index]
        {"state": [{**ANSWER["outputs"][0], "path": "mean", "dtype": "object"}]},  # type: ignore[index]
        {"state": [{**ANSWER["outputs"][0], "path": "mean", "start": 4}]},  # type: ignore[index]
        {"state": 2 * [{**ANSWER["outputs"][0], "path": "mean"}]},  # type: ignore[index]
        {"status": "hung"},
        {"seconds": "long"},
    ],
)
def test_a_hostile_reply_is_malformed(tmp_path: Path, change: dict[str, object]) -> None:
    (tmp_path / "out").write_bytes(bytes(8))
    fd = os.open(tmp_path / "out", os.O_RDONLY)
    try:
        with pytest.raises(replies.Malformed):
            replies.observation({**ANSWER, **change}, [fd], state=["mean"])
    finally:
        os.close(fd)


def test_state_that_was_asked_for_is_read(tmp_path: Path) -> None:
    (tmp_path / "out").write_bytes(np.array([1, 2, 3, 4], dtype=np.float32).tobytes())
    fd = os.open(tmp_path / "out", os.O_RDONLY)
    held = {**ANSWER["outputs"][0], "path": "mean", "start": 8}  # type: ignore[index]
    found = replies.observation({**ANSWER, "state": [held]}, [fd], state=["mean", "absent"])
    os.close(fd)
    assert np.array_equal(found.outputs[0].data, [1, 2])
    assert [(t.name, t.data.tolist()) for t in found.state] == [("final mean", [3, 4])]


def test_state_that_raises_is_the_candidates_fault(zygote: Zygote) -> None:
    body = "self.state_dict = lambda: 1 / 0\nreturn x"
    assert run(zygote, body).status is Status.RAISED


def test_outputs_in_a_pipe_are_malformed() -> None:
    reading, writing = os.pipe()
    try:
        with pytest.raises(replies.Malformed):
            replies.observation(ANSWER, [reading])
    finally:
        os.close(reading)
        os.close(writing)


@pytest.mark.parametrize("size", ["x", None, float("inf"), 1.5])
def test_a_hostile_description_is_left_out(size: object) -> None:
    rows = [["w", [size], "float32", "00"], ["b", [2], "float32", "11"]]
    assert replies.weights({"weights": rows}) == (("b", (2,), "float32", "11"),)
