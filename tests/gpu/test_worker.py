"""A candidate on a GPU: what guards, poison and the sandbox see, and what its faults do to others."""

from __future__ import annotations

import re
import textwrap
import time

import numpy as np
import pytest

from adjudge.observation import Observation, Status
from adjudge.task import Candidate
from adjudge.worker.client import Call, RunRequest, TensorImage, Zygote

pytestmark = pytest.mark.gpu

#: No zero among them: stored into a guard of zeros it would change nothing.
X = np.arange(1, 9, dtype=np.float32)

KERNELS = """
import os, time
import torch
import triton
import triton.language as tl


@triton.jit
def shifted(x, out, n, by, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    tl.store(out + i + by, tl.load(x + i, i < n), i < n)


@triton.jit
def endless(x, out):
    while tl.load(x, volatile=True) < 1e30:
        tl.store(out, 1.0)


"""


def run(
    zygote: Zygote, body: str, *, timeout: float = 60.0, fill: str = "zero", guard: str = "zero"
) -> Observation:
    source = KERNELS + "class ModelNew(torch.nn.Module):\n    def forward(self, x):\n"
    source += textwrap.indent(textwrap.dedent(body), " " * 8)
    worker = zygote.spawn()
    try:
        reply = worker.load(Candidate(name="candidate", source=source, entry="ModelNew"))
        if reply.observation is not None:
            return reply.observation
        call = Call(args=(TensorImage.plain(X, "float32"),))
        return worker.run(RunRequest(calls=(call,), fill=fill, guard=guard), timeout=timeout)
    finally:
        worker.close()


def honest(zygote: Zygote) -> Observation:
    return run(
        zygote, "out = torch.empty_like(x)\nshifted[(1,)](x, out, 8, 0, BLOCK=8)\nreturn out"
    )


def test_an_honest_candidate_answers_and_its_launch_is_seen(gpu: Zygote) -> None:
    observation = honest(gpu)
    assert observation.status is Status.ANSWERED, observation
    assert np.array_equal(observation.outputs[0].data, X)
    assert observation.outputs[0].device == "cuda:0"
    assert not observation.tampering
    assert not observation.faults
    (launch,) = observation.launches
    assert launch.kernel == "shifted"
    assert launch.constants == (("BLOCK", 8),)
    assert dict(launch.parameters)["x"].startswith("*fp32")


def test_memory_taken_from_python_and_from_c_holds_the_fill(gpu: Zygote) -> None:
    for body in ("return torch.empty(64, device=x.device)", "return torch.empty_like(x)"):
        observation = run(gpu, body, fill="nan")
        assert np.isnan(observation.outputs[0].data).all(), body
        assert (run(gpu, body, fill="finite").outputs[0].data > 1e29).all(), body


@pytest.mark.parametrize("by", [-1, 1])
def test_a_store_beside_an_output_is_seen(gpu: Zygote, by: int) -> None:
    body = f"out = torch.empty_like(x)\nshifted[(1,)](x, out, 8, {by}, BLOCK=8)\nreturn out"
    assert run(gpu, body).faults


def test_a_store_beside_an_input_is_seen(gpu: Zygote) -> None:
    observation = run(gpu, "shifted[(1,)](x, x, 8, 8, BLOCK=8)\nreturn x + 1")
    assert observation.faults


def test_a_load_beside_an_input_reads_the_guard(gpu: Zygote) -> None:
    body = (
        "out = torch.empty(16, device=x.device)\nshifted[(1,)](x, out, 16, 0, BLOCK=16)\nreturn out"
    )
    assert np.isnan(run(gpu, body, guard="nan").outputs[0].data[8:]).all()


def test_a_changed_input_is_seen(gpu: Zygote) -> None:
    assert run(gpu, "x.mul_(2)\nreturn x + 1").mutated_inputs


@pytest.mark.parametrize(
    ("body", "status"),
    [
        ("out = torch.empty_like(x)\nshifted[(1,)](x, out, 8, 1 << 40, BLOCK=8)\nreturn out", "crashed"),
        ("out = torch.empty_like(x)\nendless[(1,)](x, out)\nreturn out", "hung"),
        ("return torch.empty(1 << 42, device=x.device)", "raised"),
        ("os._exit(0)", "exited"),
        ("open('/tmp/adjudge-escape', 'w')\nreturn x", "raised"),
        ("os.listdir(os.path.expanduser('~root'))\nreturn x", "raised"),
        ("torch._C._cuda_resetPeakMemoryStats(99)\nreturn x", "raised"),
        ("return x[torch.tensor([9], device=x.device)]", "crashed"),
    ],
)  # fmt: skip
def test_a_fault_is_an_observation_and_the_next_worker_answers(
    gpu: Zygote, body: str, status: str
) -> None:
    observation = run(gpu, body, timeout=20.0)
    assert observation.status is Status(status), observation
    assert honest(gpu).status is Status.ANSWERED


EXTENSION = '''
import torch
from torch.utils.cpp_extension import load_inline

CUDA = r"""
__global__ void doubled(const float* x, float* out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) out[i] = 2 * x[i]BROKEN;
}
void launch(long x, long out, long n) {
    doubled<<<(n + 255) / 256, 256>>>((const float*)x, (float*)out, (int)n);
}
"""
CPP = r"""
#include <Python.h>
void launch(long x, long out, long n);
static PyObject* run(PyObject*, PyObject* args) {
    long x, out, n;
    if (!PyArg_ParseTuple(args, "lll", &x, &out, &n)) return nullptr;
    launch(x, out, n);
    Py_RETURN_NONE;
}
static PyMethodDef methods[] = {{"launch", run, METH_VARARGS, ""}, {nullptr, nullptr, 0, nullptr}};
static PyModuleDef module = {PyModuleDef_HEAD_INIT, "doubling", "", -1, methods};
PyMODINIT_FUNC PyInit_doubling() { return PyModule_Create(&module); }
"""
# Without torch's headers, which take half a minute to compile.
ext = load_inline("doubling", CPP, CUDA, no_implicit_headers=True)


class ModelNew(torch.nn.Module):
    def forward(self, x):
        out = torch.empty_like(x)
        ext.launch(x.data_ptr(), out.data_ptr(), x.numel())
        return out
'''


def test_cuda_source_is_compiled_once_for_all_workers_of_a_candidate(gpu: Zygote) -> None:
    source = EXTENSION.replace("BROKEN", "")
    candidate = Candidate(name="c", source=source, entry="ModelNew", language="cuda")
    with gpu.brood() as brood:
        seconds = []
        for _ in range(2):
            worker = brood.worker()
            start = time.perf_counter()
            reply = worker.load(candidate)
            seconds.append(time.perf_counter() - start)
            assert reply.observation is None, reply
            call = Call(args=(TensorImage.plain(X, "float32"),))
            observation = worker.run(RunRequest(calls=(call,)), timeout=60.0)
            assert np.array_equal(observation.outputs[0].data, 2 * X)
            assert not observation.tampering
            worker.close()
    assert seconds[1] < seconds[0] / 3, seconds


def test_what_nvcc_says_comes_first(gpu: Zygote) -> None:
    source = EXTENSION.replace("BROKEN", " + missing")
    candidate = Candidate(name="c", source=source, entry="ModelNew", language="cuda")
    with gpu.brood() as brood:
        reply = brood.worker().load(candidate)
    assert reply.observation is not None
    assert reply.observation.raised is not None
    first = reply.observation.raised.message.splitlines()[0]
    assert re.fullmatch(r'cuda\.cu\(\d+\): error: identifier "missing" is undefined', first), first
