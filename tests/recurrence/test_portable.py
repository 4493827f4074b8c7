"""The Triton kernels of the portable path: against float64 in the interpreter, on a GPU at the bar."""

from __future__ import annotations

import importlib
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch import Tensor

from gated_recurrence import portable

HERE = Path(__file__).resolve().parent

#: One of each kind: scalar gate and gate a channel, without and with a delta rule, exclusive sum.
KINDS = ("simple_gla", "gated_delta_rule", "gla", "rwkv7")
REST = ("linear_attention", "retention", "delta_rule", "kda", "gated_delta_rule_2")

#: Whether kernels are interpreted is settled when triton is imported, so in a process of its own.
PROGRAM = """
import sys
sys.path.insert(0, {here!r})
import torch
from gated_recurrence.portable.scan import TritonScan
from test_members import errors
from test_portable import draw
taken = []
forward = TritonScan.forward
TritonScan.forward = staticmethod(lambda *args: taken.append(1) or forward(*args))
inputs = draw({member!r}, {{"B": 1, "T": {length}, "H": 1, "G": 2, "K": 8, "V": 6}}, {gate})
lifted = {{n: x.detach().double().requires_grad_() for n, x in inputs.items()}}
found = errors({member!r}, inputs, lifted)
assert max(found.values()) <= {bar}, found
assert taken == [1], taken
"""

# Sums of at most T·K < 2**11 float32 roundings that are independent, 2**-24 times 2**5.5, and a factor
# of four for the solve and the cancelling terms of the gate.
BAR = 2.0**-16.5
# exp magnifies the rounding of its argument: |G| ≤ 60 · 4 · 64 < 2**14 times 2**-24.
STRONG = 2.0**-10


def draw(member: str, sizes: dict[str, int], gate: float, half: bool = False) -> dict[str, Tensor]:
    """Inputs in float32; with `half` q, k and v in bfloat16."""
    extras = importlib.import_module("test_members").EXTRAS[member]
    source = torch.Generator().manual_seed(sizes["T"])

    def normal(letters: str) -> Tensor:
        return torch.randn([sizes[x] for x in letters], generator=source, dtype=torch.float64)

    unit = torch.nn.functional.normalize
    out = {"q": normal("BTHK"), "k": unit(normal("BTHK"), dim=-1), "v": normal("BTGV")}
    for name, letters in extras.items():
        out[name] = normal(letters).sigmoid()
        if name in ("g", "log_decay"):
            out[name] = -gate * normal(letters).abs()
    if member == "rwkv7":
        direction = unit(normal("BTGK"), dim=-1)
        out["b"], out["a"] = direction * out["a"], -direction
    out["initial_state"] = normal("BGK").unsqueeze(-1) * normal("BGV").unsqueeze(-2)
    dtypes = {n: torch.bfloat16 if half and n in ("q", "k", "v") else torch.float32 for n in out}
    return {n: x.to(dtypes[n]).requires_grad_() for n, x in out.items()}


def interpret(member: str, length: int, gate: float, bar: float = BAR) -> None:
    in_the_interpreter(
        PROGRAM.format(here=str(HERE), member=member, length=length, gate=gate, bar=bar)
    )


def in_the_interpreter(program: str) -> None:
    environment = {**os.environ, "TRITON_INTERPRET": "1", portable.CHOICE: "triton"}
    done = subprocess.run(
        [sys.executable, "-c", program],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]


@pytest.mark.parametrize("member", KINDS)
def test_interpreted_kernels_match_the_naive_recurrence_and_its_gradients(member: str) -> None:
    interpret(member, 66, 0.2)


def test_strong_gates_in_the_interpreter() -> None:
    interpret("kda", 20, 60.0, STRONG)


@pytest.mark.slow
@pytest.mark.parametrize("length", [1, 64, 130])
@pytest.mark.parametrize("member", KINDS + REST)
def test_every_member_in_the_interpreter(member: str, length: int) -> None:
    interpret(member, length, 0.2)


def test_what_the_choice_says_is_what_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(portable.CHOICE, raising=False)
    monkeypatch.delenv("TRITON_INTERPRET", raising=False)
    half = ("cuda", torch.float32, 128, 64, True)
    assert portable.refusal(*half) is None
    assert "on cpu" in str(portable.refusal("cpu", *half[1:]))
    assert "float64" in str(portable.refusal("cuda", torch.float64, 128, 64, True))
    assert "K = 512" in str(portable.refusal("cuda", torch.float32, 512, 64, True))
    assert "no tokens" in str(portable.refusal("cuda", torch.float32, 128, 0, True))
    assert "float32" in str(portable.refusal("cuda", torch.float32, 128, 64, False))
    monkeypatch.setenv(portable.CHOICE, "torch")
    assert portable.CHOICE in str(portable.refusal(*half))
    monkeypatch.setenv(portable.CHOICE, "triton")
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    assert portable.refusal("cpu", torch.float32, 128, 64, False) is None


def beyond_the_emulation(member: str, sizes: dict[str, int], gate: float, device: str) -> list[str]:
    """What of bfloat16 kernels is beyond 1.1 times the error of the torch path, each output against
    float64. They give the same bits twice."""
    members = importlib.import_module("test_members")
    drawn = draw(member, sizes, gate, half=True)
    inputs = {n: x.detach().to(device).requires_grad_() for n, x in drawn.items()}

    def run(choice: str, given: dict[str, Tensor]) -> list[Tensor | None]:
        os.environ[portable.CHOICE] = choice
        out = members.public(member, given)
        weights = [torch.cos(torch.arange(x.numel(), device=device)).view(x.shape) for x in out]
        total = sum((x.double() * w).sum() for x, w in zip(out, weights, strict=True))
        leaves = list(given.values())
        grads = torch.autograd.grad(total, leaves, allow_unused=True)
        return [*out, *grads]

    lifted = {n: x.detach().double().requires_grad_() for n, x in inputs.items()}
    want, emulated = run("torch", lifted), run("torch", inputs)
    got, again = run("triton", inputs), run("triton", inputs)
    names = ["o", "final", *inputs]
    failed = []
    for name, exact, torch_path, kernels, repeat in zip(
        names, want, emulated, got, again, strict=True
    ):
        if exact is None or not bool(exact.any()):
            continue
        assert torch.equal(kernels, repeat), name
        ours, theirs = (members.relative(x, exact) for x in (kernels, torch_path))
        # Where no operand is rounded, as in a final state without a decay, float32 is what is left.
        if not ours <= max(1.1 * theirs, members.float32_steps(sizes["T"])):
            failed.append(f"{name}: {ours / theirs:.3f} of the emulation's {theirs:.3g}")
    return failed


#: Triton's own interpreter has no products of bfloat16; Adjudge's does as the hardware does.
ROUNDED = """
import sys
sys.path.insert(0, {here!r})
from adjudge.worker.interpreter import install
install()
from test_portable import beyond_the_emulation
sizes = {{"B": 1, "T": 130, "H": 1, "G": 2, "K": 32, "V": 32}}
failed = {{(m, g): beyond_the_emulation(m, sizes, g, "cpu") for m in {members!r} for g in (0.0, 5.0)}}
assert not any(failed.values()), failed
"""


def test_interpreted_kernels_stay_at_the_emulations_error() -> None:
    in_the_interpreter(ROUNDED.format(here=str(HERE), members=("gated_delta_rule", "rwkv7")))


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an NVIDIA GPU")
@pytest.mark.parametrize("gate", [0.0, 0.1, 5.0])
@pytest.mark.parametrize("key", [64, 128])
@pytest.mark.parametrize("member", KINDS + REST)
def test_compiled_kernels_stay_at_the_emulations_error(
    member: str, key: int, gate: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(HERE))
    monkeypatch.setenv(portable.CHOICE, "")  # put back afterwards
    monkeypatch.setattr("gated_recurrence.native.dispatch.CAPABILITY", (0, 0))
    sizes = {"B": 2, "T": 321, "H": 2, "G": 4, "K": key, "V": key}
    failed = beyond_the_emulation(member, sizes, gate, "cuda")
    assert not failed, failed
