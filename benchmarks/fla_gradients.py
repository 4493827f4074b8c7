"""Gradients of flash-linear-attention's chunked kernels on one GPU, under each configuration of the
kernel that is suspected, against float64.

    python benchmarks/fla_gradients.py --package 0.4.1=FOLDER --package 0.5.0=FOLDER --out FILE.jsonl

Each folder holds an unpacked wheel of fla-core. Public reports name compilations that are wrong on
Hopper, by Triton from 3.4.0 on: DeltaNet's with four warps (issue 984), Gated DeltaNet's with blocks of
64 columns (issue 640), and the state's gradient where a scale of one is compiled in (pull request 1262).
Every configuration of those kernels is run by itself; of the other kernels the first one. One line a
run: the relative error of each gradient in the Frobenius norm, or how the process ended.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

Tensors = dict[str, Tensor]
#: Where the suspected kernel of each member is.
KERNELS = {
    "delta_rule": ("fla.ops.delta_rule.wy_fast", "prepare_wy_repr_bwd_kernel"),
    "gated_delta_rule": ("fla.ops.common.chunk_o", "chunk_bwd_kernel_dqkwg"),
    "simple_gla": ("fla.ops.common.chunk_h", "chunk_bwd_kernel_dh"),
}
#: Past this a gradient is wrong: 16-bit operands give a few thousandths.
WRONG = 0.05


@dataclass(frozen=True)
class Case:
    version: str
    member: str
    #: K and V.
    width: int
    tokens: int
    dtype: str
    #: None is the kernels' own, 1 / sqrt(K).
    scale: int | None
    #: Times the logarithm of the decay.
    decay: float = 1.0


CASES = (
    Case("0.5.0", "delta_rule", 64, 80, "bfloat16", None),
    Case("0.5.0", "delta_rule", 64, 128, "float16", 1),
    Case("0.5.0", "delta_rule", 128, 128, "bfloat16", None),
    Case("0.5.0", "delta_rule", 100, 300, "float16", 1),
    Case("0.4.1", "gated_delta_rule", 100, 300, "float16", 1, 10.0),
    Case("0.4.1", "gated_delta_rule", 100, 300, "float16", 1),
    Case("0.4.1", "gated_delta_rule", 100, 128, "bfloat16", None),
    Case("0.4.1", "gated_delta_rule", 64, 128, "float16", 1),
    Case("0.4.1", "gated_delta_rule", 128, 128, "bfloat16", None),
    Case("0.4.1", "gated_delta_rule", 128, 300, "float16", None, 0.1),
    Case("0.5.0", "simple_gla", 128, 128, "bfloat16", 1),
    Case("0.5.0", "simple_gla", 64, 128, "float16", 1),
    Case("0.5.0", "simple_gla", 100, 128, "float16", 1),
)
HEADS = 2


def inputs(case: Case, device: str) -> Tensors:
    """q, k [1, T, H, K] (k of length one in delta rules), v [1, T, H, V], g [1, T, H] float32, beta
    [1, T, H], state [1, H, K, V] float32, cotangents `do` and `dstate` of the answers."""
    torch.manual_seed(0)
    shape, narrow = (1, case.tokens, HEADS), getattr(torch, case.dtype)
    q, k, v, do = (torch.randn(*shape, case.width) for _ in range(4))
    state, dstate = (torch.randn(1, HEADS, case.width, case.width) for _ in range(2))
    g = torch.nn.functional.logsigmoid(torch.rand(shape)) * case.decay
    found = {"q": q, "k": torch.nn.functional.normalize(k, dim=-1), "v": v, "do": do}
    found |= {"beta": torch.rand(shape).sigmoid()}
    found = {name: tensor.to(device, narrow) for name, tensor in found.items()}
    return found | {
        name: tensor.to(device) for name, tensor in (("g", g), ("state", state), ("dstate", dstate))
    }


def recurrence(case: Case, given: Tensors) -> tuple[Tensor, Tensor]:
    """The answers by their definition, token by token: o [1, T, H, V], the last state."""
    scale = case.width**-0.5 if case.scale is None else case.scale
    state, outputs = given["state"], []
    for t in range(case.tokens):
        q, k, v = (given[name][:, t] for name in "qkv")
        if case.member != "delta_rule":
            state = state * given["g"][:, t].exp()[..., None, None]
        if case.member != "simple_gla":
            v = (v - (k[..., None] * state).sum(-2)) * given["beta"][:, t, :, None]
        state = state + k[..., None] * v[..., None, :]
        outputs.append((scale * q[..., None] * state).sum(-2))
    return torch.stack(outputs, 1), state


def chunked(case: Case) -> Callable[[Case, Tensors], tuple[Tensor, Tensor]]:
    """The library's answers."""
    module = importlib.import_module(f"fla.ops.{case.member}")
    function = getattr(module, f"chunk_{case.member}")
    names = {
        "delta_rule": ("q", "k", "v", "beta"),
        "gated_delta_rule": ("q", "k", "v", "g", "beta"),
        "simple_gla": ("q", "k", "v", "g"),
    }[case.member]

    def run(case: Case, given: Tensors) -> tuple[Tensor, Tensor]:
        tensors = {name: given[name] for name in names}
        found: tuple[Tensor, Tensor] = function(
            **tensors, scale=case.scale, initial_state=given["state"], output_final_state=True
        )
        return found

    return run


def gradients(
    case: Case, given: Tensors, answer: Callable[[Case, Tensors], tuple[Tensor, Tensor]]
) -> Tensors:
    leaves = {
        name: tensor.detach().clone().requires_grad_()
        for name, tensor in given.items()
        if name not in ("do", "dstate")
    }
    o, state = answer(case, leaves)
    loss = (o.double() * given["do"].double()).sum()
    loss = loss + (state.double() * given["dstate"].double()).sum()
    loss.backward()
    return {name: leaf.grad for name, leaf in leaves.items() if leaf.grad is not None}


def tuners(kernel: Any) -> Any:
    """The autotuner around a kernel, below its heuristics."""
    while not hasattr(kernel, "configs"):
        kernel = kernel.fn
    return kernel


def first_configurations() -> None:
    """Every autotuned kernel that was imported runs its first configuration."""
    from triton.runtime.autotuner import Autotuner, Heuristics

    for module in [m for name, m in sys.modules.items() if name.startswith("fla.")]:
        for value in list(vars(module).values()):
            while isinstance(value, Heuristics):
                value = value.fn
            if isinstance(value, Autotuner):
                value.configs = value.configs[:1]


def configurations(case: Case) -> tuple[Any, list[Any]]:
    module, name = KERNELS[case.member]
    tuner = tuners(getattr(importlib.import_module(module), name))
    return tuner, list(tuner.configs)


def measure(case: Case, skip: int) -> Iterator[dict[str, Any]]:
    """The runs of a case from configuration `skip` on."""
    answer = chunked(case)
    tuner, configs = configurations(case)
    first_configurations()
    given = inputs(case, "cuda")
    wide = {name: tensor.double() for name, tensor in given.items()}
    wanted = gradients(case, wide, recurrence)
    for number, config in enumerate(configs[skip:], skip):
        tuner.configs = [config]
        tuner.cache.clear()
        line = {"number": number, "of": len(configs), "config": str(config)}
        try:
            found = gradients(case, given, answer)
            torch.cuda.synchronize()
        except RuntimeError as error:
            yield line | {"raised": f"{type(error).__name__}: {error}"[:200]}
            if "CUDA" in str(error):
                os._exit(3)
            continue
        except Exception as error:
            yield line | {"raised": f"{type(error).__name__}: {error}"[:200]}
            continue
        errors = {
            name: float((found[name].double() - exact).norm() / exact.norm())
            for name, exact in wanted.items()
            if name in found
        }
        yield line | {"errors": {name: float(f"{error:.3g}") for name, error in errors.items()}}


def runs(case: Case, folder: Path, cache: str, end: float) -> list[dict[str, Any]]:
    """All runs of a case; a process that dies is followed by another, from the next configuration."""
    path = os.pathsep.join([str(folder), os.environ.get("PYTHONPATH", "")])
    environment = {**os.environ, "PYTHONPATH": path, "TRITON_CACHE_DIR": cache}
    lines: list[dict[str, Any]] = []
    total, text = 1, json.dumps(asdict(case))
    while len(lines) < total and time.time() < end:
        command = [sys.executable, __file__, "--case", text, "--skip", str(len(lines))]
        try:
            done = subprocess.run(
                command, env=environment, capture_output=True, text=True, check=False,
                timeout=max(1.0, end - time.time()),
            )  # fmt: skip
            out, words = done.stdout, f"exit {done.returncode}: {done.stderr.strip()[-300:]}"
        except subprocess.TimeoutExpired as late:
            out = late.stdout.decode() if isinstance(late.stdout, bytes) else late.stdout or ""
            words = "no time left"
        found = [json.loads(line) for line in out.splitlines() if line.startswith("{")]
        lines += found
        total = found[-1]["of"] if found else total
        if not found:
            lines.append({"number": len(lines), "ended": words})
    return [{**asdict(case), **line} for line in lines]


def said(line: dict[str, Any]) -> str:
    if "errors" not in line:
        return "-"
    return "right" if all(error < WRONG for error in line["errors"].values()) else "WRONG"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--package", action="append", default=[], help="VERSION=FOLDER")
    parser.add_argument("--out", type=Path)
    parser.add_argument("--jobs", type=int, default=10)
    parser.add_argument("--seconds", type=float, default=80.0, help="for everything")
    parser.add_argument("--case", help=argparse.SUPPRESS)
    parser.add_argument("--skip", type=int, default=0, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.case:
        for line in measure(Case(**json.loads(options.case)), options.skip):
            print(json.dumps(line), flush=True)
        return
    folders = dict(pair.split("=", 1) for pair in options.package)
    cases = [case for case in CASES if case.version in folders]
    end = time.time() + options.seconds
    with tempfile.TemporaryDirectory() as cache, ThreadPoolExecutor(options.jobs) as pool:
        for lines in pool.map(lambda c: runs(c, Path(folders[c.version]), cache, end), cases):
            for line in lines:
                if options.out is not None:
                    with options.out.open("a") as sink:
                        sink.write(json.dumps(line) + "\n")
                print(said(line), json.dumps(line), flush=True)


if __name__ == "__main__":
    main()
