"""Kernels compiled for chips that are not here, and what is read in their machine code."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import pytest

from adjudge.cli import run
from adjudge.contract import Outcome
from adjudge.frontends import kernelbench
from adjudge.judge.verify import Options, verify
from adjudge.static import sass
from adjudge.static.build import Built, Job, build
from adjudge.static.chips import CHIPS, chip
from adjudge.static.kernels import standalone
from adjudge.static.source import Source
from adjudge.task import Launch
from adjudge.worker.client import Zygote

pytest.importorskip("triton")

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"

KERNELS = """
import triton
import triton.language as tl

HALF = tl.constexpr(0.5)
UNUSED = undefined_name


@triton.jit
def halved(x):
    return x * HALF


@triton.autotune(configs=[triton.Config({"N": 64})], key=[])
@triton.jit
def product(a, b, out, N: tl.constexpr, KIND: tl.constexpr, PRECISION: tl.constexpr):
    m, n = tl.arange(0, N)[:, None], tl.arange(0, N)[None, :]
    x, y = tl.load(a + m * N + n), tl.load(b + m * N + n)
    total = tl.dot(x, y, out_dtype=KIND, input_precision=PRECISION)
    tl.store(out + m * N + n, halved(total))


@triton.jit
def atomic(a, out, n):
    tl.atomic_add(out, tl.load(a + tl.program_id(0)))


@triton.jit
def large(a, out, N: tl.constexpr):
    m, n = tl.arange(0, N)[:, None], tl.arange(0, N)[None, :]
    x = tl.load(a + m * N + n)
    for _ in range(4):
        x = tl.exp(x) + tl.sum(x, 0)[None, :] * tl.sum(x, 1)[:, None]
    tl.store(out + m * N + n, x)


@triton.jit
def senseless(a):
    tl.store(a, tl.arange(0, 3))
"""


def job(kernel: str, chip_name: str, parameters: Mapping[str, str], **options: int) -> Job:
    launch = Launch(
        kernel=kernel,
        grid=(),
        parameters=tuple(parameters.items()),
        options=tuple(options.items()),
    )
    return Job(launch=launch, text=standalone(Source(KERNELS), kernel), chip=chip(chip_name))


def product(chip_name: str, operand: str, kind: str, precision: str = "tf32") -> Job:
    parameters = {"a": f"*{operand}:16", "b": f"*{operand}:16", "out": "*fp32:16", "N": "=64"}
    parameters |= {"KIND": f"=dtype {kind}", "PRECISION": f"={precision!r}"}
    return job("product", chip_name, parameters)


LARGE = {"a": "*fp32:16", "out": "*fp32:16", "N": "=256"}
JOBS = {
    **{c.name: product(c.name, "fp16", "fp32") for c in CHIPS},
    "narrow": product("sm_80", "fp16", "fp16"),
    "tf32": product("sm_80", "fp32", "fp32"),
    "ieee": product("sm_80", "fp32", "fp32", "ieee"),
    "atomic": job("atomic", "sm_90", {"a": "*fp32", "out": "*fp32", "n": "i32"}),
    "spilling": job("large", "sm_90", LARGE, num_warps=4),
    "senseless": job("senseless", "sm_90", {"a": "*fp32"}),
    "unnamed": job("atomic", "sm_90", {"a": "?", "out": "*fp32", "n": "i32"}),
}


@pytest.fixture(scope="module")
def made() -> dict[str, Built]:
    return dict(zip(JOBS, build(list(JOBS.values())), strict=True))


def remarks(built: Built) -> str:
    assert built.code is not None, built.error
    return "; ".join(built.code.remarks)


@pytest.mark.parametrize("name", [c.name for c in CHIPS])
def test_an_honest_product_has_nothing_narrow_or_unordered(
    made: dict[str, Built], name: str
) -> None:
    code = made[name].code
    assert code is not None, made[name].error
    assert code.registers > 0
    assert code.instructions > 50
    assert code.products
    # Triton 3.6.0 spills 16 bytes of it on sm_100.
    assert all(remark.startswith("spills") for remark in code.remarks)


def test_accumulators_and_operands_are_named(made: dict[str, Built]) -> None:
    assert "summed in fp16" in remarks(made["narrow"])
    assert "tf32" in remarks(made["tf32"])
    assert not remarks(made["ieee"])
    code = made["ieee"].code
    assert code is not None
    assert not code.products


def test_atomic_sums_and_spills_are_named(made: dict[str, Built]) -> None:
    assert "adds F32 atomically" in remarks(made["atomic"])
    assert "spills" in remarks(made["spilling"])


def test_what_no_compiler_accepts_says_why(made: dict[str, Built]) -> None:
    assert made["senseless"].code is None
    assert "power of 2" in made["senseless"].error
    assert "parameter a" in made["unnamed"].error


def test_a_kernel_is_cut_out_with_what_it_needs() -> None:
    text = standalone(Source(KERNELS), "product")
    assert "def halved" in text
    assert "HALF = tl.constexpr(0.5)" in text
    assert "autotune" not in text
    assert "UNUSED" not in text
    with pytest.raises(KeyError):
        standalone(Source(KERNELS), "forward")


def test_the_reading_of_instructions() -> None:
    listing = """
        /*0000*/                   LDC R1, c[0x0][0x28] ;
        /*0010*/                   HFMA2 R5, -RZ, RZ, 0, 0 ;
        /*0020*/                   HFMA2.BF16_V2 R5, R1, R2, R5 ;
        /*0030*/               @P0 STL [R1], R4 ;
        /*0040*/              @!P0 HMMA.16816.F16 R4, R8, R10, R4 ;
        /*0050*/                   HGMMA.64x64x8.F32.TF32 R24, gdesc[UR4], R24 ;
        /*0060*/                   RED.E.ADD.F32.FTZ.RN.STRONG.GPU desc[UR4][R2.64], R5 ;
        /*0070*/                   ATOMG.E.MAX.S32.STRONG.GPU PT, R3, [R2], R5 ;
        /*0080*/                   MUFU.EX2 R4, R4 ;
    """
    usage = " Function k:\n  REG:255 STACK:8 SHARED:16 LOCAL:4 CONSTANT[0]:424"
    code = sass.read(chip("sm_80"), usage, listing, shared=170_000, tensor_memory=0)
    assert code.instructions == 9
    assert code.half == code.spills == code.flushes == 1
    assert [(p.operands, p.accumulator) for p in code.products] == [
        ("tf32", "fp32"),
        ("fp16", "fp16"),
    ]
    assert code.float_atomics == (("F32", 1),)
    assert code.approximate == (("EX2", 1),)
    assert code.excesses == ("asks for 170,000 bytes of shared memory; sm_80 has 166,912",)


def test_the_process_that_compiles_can_write_nowhere_else(tmp_path: Path) -> None:
    target = tmp_path / "escaped"
    text = f"open({str(target)!r}, 'w').write('x')\n" + JOBS["atomic"].text
    hostile = Job(launch=JOBS["atomic"].launch, text=text, chip=chip("sm_90"))
    (built,) = build([hostile])
    assert built.code is None
    assert "PermissionError" in built.error
    assert not target.exists()


@pytest.mark.parametrize("left", ["[]", "{}", "nonsense", json.dumps({"usage": 1, "sass": []})])
def test_a_result_that_is_no_result_is_said_to_be_unreadable(left: str) -> None:
    text = f"open('0.json', 'w').write({left!r})\nimport os\nos._exit(0)\n" + JOBS["atomic"].text
    (built,) = build([Job(launch=JOBS["atomic"].launch, text=text, chip=chip("sm_90"))])
    assert built.code is None
    assert "unreadable" in built.error


def test_the_command(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["inspect", str(EXAMPLES / "column_count_atomics" / "correct.py"), "-c", "sm_90"]
    assert run(arguments) == 0
    shown = capsys.readouterr().out
    assert "columns=128 rows=64" in shown
    assert "count_kernel" in shown
    assert run([*arguments[:-1], "sm_1"]) == 2


def test_a_verdict_notes_what_is_asked_of_a_chip(zygote: Zygote) -> None:
    folder = EXAMPLES / "column_count_atomics"
    program, candidate = kernelbench.load(folder / "correct.py", folder / "reference.py")
    gates = ("resource-excess",)
    options = Options(zygote=zygote, examine=False, gates=gates, chips=(chip("sm_90"),))
    (finding,) = verify(program, candidate, options).findings
    assert finding.outcome is Outcome.PASS
    (note,) = [note for note in finding.notes if "sm_90" in note]
    assert "registers a thread of 255" in note
    assert "bytes of shared memory of 232,448" in note
