"""CUDA C++ in a candidate's Python: what is read, what is cut out of it, and its machine code."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from adjudge.cli import run
from adjudge.judge.machine import WITHOUT_NVCC, machine_code
from adjudge.static import nvcc, sass
from adjudge.static.chips import CHIPS, chip
from adjudge.static.device_code import PROLOGUE, device_code
from adjudge.static.inline import inline_sources
from adjudge.static.sass import MachineCode
from adjudge.static.source import Source

HERE = Path(__file__).parent
OWN = (HERE / "own.cu").read_text()

needs_nvcc = pytest.mark.skipif(nvcc.find() is None, reason="there is no nvcc here")

HEAD = """
import torch
from torch.utils.cpp_extension import load_inline
"""


def extension(sources: str, before: str = "", more: str = "") -> str:
    return f"{HEAD}\n{before}\nmodule = load_inline('m', '', cuda_sources={sources}{more})\n"


def test_sources_are_folded_from_constants() -> None:
    before = "SIZE = 64\nhead = f'#define N {SIZE}'\nbody = head + '\\n__global__ void k() {}'"
    for sources in ("body", "[head, '__global__ void k() {}']", "(body)"):
        flags = ", extra_cuda_cflags=['-O3', '--use_fast_math', '-ccbin=/tmp/x', '-I/etc']"
        (found,), unread = inline_sources(Source(extension(sources, before, flags)))
        assert found.text == "#define N 64\n__global__ void k() {}"
        assert found.flags == ("-O3", "--use_fast_math")
        assert found.line == 8
        assert not unread


def test_sources_that_depend_on_the_run_are_said_to_be_unread() -> None:
    found, unread = inline_sources(Source(extension("str(torch.version.cuda)")))
    assert not found
    assert unread == ("line 6: cuda_sources is put together at run time",)


FILE = """
#include <torch/extension.h>
#include <cuda_fp16.h>
// __global__ void none() {}
constexpr int WIDTH = 4;
static const char* words = "__global__ void nothing() {";
namespace {
template <typename T, int N = 3>
__global__ void __launch_bounds__(256, 2) scaled(const T* a, T* o) { if (a[0] < 1) { o[0] = N; } }
__device__ float twice(float x) { return x * 2.f; }
}
struct Shape { float a; int n; };
__constant__ float table[] = {1.f, 2.f};
torch::Tensor go(torch::Tensor a, Shape s = {1.f, 2});
torch::Tensor go(torch::Tensor a, Shape s) {
    const int COUNT = 8;
    AT_DISPATCH(a, [&] { scaled<scalar_t, COUNT><<<1, 2>>>(a, a); });
    return a;
}
__global__ void last(float* o) { o[0] = twice(table[1]) + WIDTH; }
PYBIND11_MODULE(NAME, m) { m.def("go", &go); }
"""


def test_what_runs_on_the_device_is_cut_out() -> None:
    code = device_code(FILE)
    assert code.kernels == ("scaled", "last")
    assert code.notes == ("scaled is read for float32",)
    text = code.text.removeprefix(PROLOGUE)
    for kept in ("WIDTH = 4", "twice", "struct Shape", "table[]", "(void*)scaled<float, 8>"):
        assert kept in text
    for cut in ("torch", "PYBIND11", "go(", "AT_DISPATCH", "none"):
        assert cut not in text


@pytest.mark.parametrize(
    "text", ["", "{", "}}}", "template <", 'R"(', "#define A \\", "__global__ void"]
)
def test_what_is_no_cuda_is_cut_to_what_is_left(text: str) -> None:
    assert device_code(text).kernels in ((), ("",))


@pytest.mark.parametrize("name", [c.name for c in CHIPS])
def test_recorded_machine_code_is_read(name: str) -> None:
    code = _recorded(name)
    assert [(p.operands, p.accumulator) for p in code["product"].products] == [("fp16", "fp32")]
    assert code["product"].remarks == ()
    assert code["narrow"].remarks == ("matrix products are summed in fp16",)
    assert code["total"].float_atomics == (("F32", 1),)
    assert 4096 <= code["total"].shared <= 4096 + 1024
    assert code["indexed"].spilled == 0
    assert code["indexed"].remarks[0].startswith("no spill, but")
    assert code["indexed"].flushes == 64
    assert code["crowded"].spilled
    assert code["crowded"].remarks[0].startswith("spills")
    assert code["crowded"].registers == 32


def _recorded(name: str) -> dict[str, MachineCode]:
    kernels = json.loads((HERE / "recorded" / f"{name}.json").read_text())["kernels"]
    names = device_code(OWN).kernels
    return {
        nvcc.readable(k["symbol"], names): sass.read(
            chip(name), k["usage"], k["sass"], spilled=k["spilled"]
        )
        for k in kernels
    }


def test_a_disassembly_is_cut_by_function() -> None:
    listing = (
        "\t.target sm_90\n//--------------------- .text._Z1kPf   -------\n\t.section a\nA ;\n"
        "//--------------------- .text._Z12a_long_kernelPf -----\nB ;\n"
    )
    assert [n for n, _ in nvcc.sections(listing)] == ["_Z1kPf", "_Z12a_long_kernelPf"]
    assert nvcc.readable("_Z12a_long_kernelPf", ("kernel", "a_long_kernel")) != "kernel"


def test_complaints_are_trimmed() -> None:
    words = (
        "x.cu(3): warning: a\n/tmp/f/x.cu(7): error: identifier is undefined\n\n1 error detected"
    )
    assert nvcc.complaint(words, "/tmp/f/x.cu").splitlines()[0] == (
        "the device code(7): error: identifier is undefined"
    )
    assert nvcc.complaint("", "x")


@needs_nvcc
def test_kernels_are_compiled_and_refusals_are_quoted() -> None:
    right = f"right = r'''{OWN.partition('// An array')[0]}'''"
    wrong = "wrong = '__global__ void k(float* a) { a[0] = missing; }'"
    text = extension("right", f"{right}\n{wrong}") + extension("wrong").replace(HEAD, "")
    built, notes = machine_code(Source(text), (), [chip("sm_90")])
    assert not notes
    assert {b.title[0] for b in built} == {"product", "narrow", "total", "k"}
    for one in built:
        if one.title[0] == "k":
            assert one.code is None
            assert 'identifier "missing" is undefined' in one.error
        else:
            assert one.code is not None
            assert one.code.remarks == _recorded("sm_90")[one.title[0]].remarks


def test_without_a_compiler_it_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nvcc, "find", lambda: None)
    built, notes = machine_code(Source(extension("'__global__ void k() {}'")), (), CHIPS)
    assert built == ()
    assert notes == (WITHOUT_NVCC,)


@needs_nvcc
def test_the_command_reads_a_candidate_of_cuda(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "reference.py").write_text(
        "import torch\nclass Model(torch.nn.Module):\n    def forward(self, x):\n        return x * 2\n"
        "def get_inputs():\n    return [torch.rand(8)]\ndef get_init_inputs():\n    return []\n"
    )
    candidate = tmp_path / "candidate.py"
    source = (
        "__global__ void doubled(const float* x, float* o) { o[threadIdx.x] = 2 * x[threadIdx.x]; }"
    )
    candidate.write_text(
        extension(repr(source)) + "class ModelNew(torch.nn.Module):\n    def forward(self, x):\n"
        "        return module.doubled(x)\n"
    )
    assert run(["inspect", str(candidate), "-c", "sm_100"]) == 0
    shown = capsys.readouterr().out
    assert "doubled" in shown
    assert "sm_100" in shown
