"""Kernels of flash-linear-attention's gated backward passes by themselves, one configuration after
another, on one GPU against float64.

    PYTHONPATH=FOLDER python benchmarks/fla_kernels.py --version 0.4.1 --kernel dqkwg --dtype float16 \\
        --widths 64 100 --seconds 60 >> docs/audits/fla-kernels.jsonl

FOLDER holds an unpacked wheel of fla-core. Public reports name three: `dqkwg`, the gradients of q, k, w
and g (issue 640: blocks of 64 columns), `dh`, those of the states (pull request 1262: a scale of one
that is compiled in), `dv`, those of v (pull request 1241: odd widths past 128). One line a
configuration: the relative error of each gradient in the Frobenius norm, or what was raised.
"""

from __future__ import annotations

import argparse
import importlib
import json
import math
import os
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
import triton
from torch import Tensor

Tensors = dict[str, Tensor]
#: Tokens of a chunk, heads, and past which error a gradient is wrong: 16-bit operands give thousandths.
CHUNK, HEADS, WRONG = 64, 4, 0.05
#: Tokens, and times the logarithm of the decay.
DRAWS = ((1024, 10.0), (128, 1.0), (300, 0.1))


@dataclass(frozen=True)
class Config:
    #: Columns of a block of K and of V.
    keys: int
    values: int
    warps: int
    stages: int
    #: An int of one is compiled in.
    scale: float


def draw(tokens: int, decay: float, width: int, dtype: torch.dtype) -> Tensors:
    """q, k, v, do, dv [1, T, H, K]; h, dh [1, chunks, H, K, V]; g [1, T, H] float32, summed within
    chunks; dht [1, H, K, V] float32."""
    source = torch.Generator(device="cuda").manual_seed(0)

    def normal(*shape: int) -> Tensor:
        return torch.randn(*shape, device="cuda", generator=source)

    chunks = -(-tokens // CHUNK)
    found = {name: normal(1, tokens, HEADS, width) for name in ("q", "k", "v", "do", "dv")}
    found |= {name: normal(1, chunks, HEADS, width, width) for name in ("h", "dh")}
    for name in "qk":
        found[name] = torch.nn.functional.normalize(found[name], dim=-1)
    found = {name: tensor.to(dtype) for name, tensor in found.items()}
    gates = torch.rand(1, chunks, CHUNK, HEADS, device="cuda", generator=source)
    gates = torch.nn.functional.logsigmoid(gates) * decay
    found["g"] = gates.cumsum(2).reshape(1, -1, HEADS)[:, :tokens].contiguous()
    found["dht"] = normal(1, HEADS, width, width)
    return found


def chunked(given: Tensors) -> Iterator[tuple[int, Tensors]]:
    """The chunks, heads first, in float64."""
    tokens = given["q"].shape[1]
    for number in range(-(-tokens // CHUNK)):
        here = slice(number * CHUNK, min(tokens, (number + 1) * CHUNK))
        part = {
            n: given[n][0, here].double().transpose(0, 1) for n in ("q", "k", "v", "do", "dv", "g")
        }
        yield number, part | {n: given[n][0, number].double() for n in ("h", "dh")}


def exact_dqkwg(given: Tensors, scale: float) -> Tensors:
    """As the kernel defines dq, dk, dw and dg, which is not yet summed over the chunk."""
    out: dict[str, list[Tensor]] = {"dq": [], "dk": [], "dw": [], "dg": []}
    for _, c in chunked(given):
        q, k, g, last = c["q"], c["k"], c["g"], c["g"][:, -1:]
        ds = ((c["do"] @ c["v"].mT) * (g[:, :, None] - g[:, None, :]).exp()).tril() * scale
        dq = c["do"] @ c["h"].mT * g.exp()[..., None] * scale
        dk = c["v"] @ c["dh"].mT * (last - g).exp()[..., None]
        both = ds * (q @ k.mT)
        dg = (dq * q).sum(-1) - (dk * k).sum(-1) + both.sum(-1) - both.sum(-2)
        dg[:, -1] += (c["h"] * c["dh"]).sum((1, 2)) * last[:, 0].exp() + (dk * k).sum((1, 2))
        found = {"dq": dq + ds @ k, "dk": dk + ds.mT @ q, "dw": -(c["dv"] @ c["h"].mT), "dg": dg}
        for name, tensor in found.items():
            out[name].append(tensor.transpose(0, 1))
    return {name: torch.cat(parts)[None] for name, parts in out.items()}


def exact_dh(given: Tensors, scale: float) -> Tensors:
    """The state's gradient behind each chunk, and before the first one."""
    state, found = given["dht"][0].double(), []
    for _, c in reversed(list(chunked(given))):
        found.append(state)
        decayed = c["q"] * scale * c["g"].exp()[..., None]
        state = state * c["g"][:, -1].exp()[:, None, None] + decayed.mT @ c["do"]
    return {"dh": torch.stack(found[::-1])[None], "dh0": state[None]}


def exact_dv(given: Tensors, scale: float) -> Tensors:
    found = []
    for _, c in chunked(given):
        g = c["g"]
        scores = ((c["k"] @ c["q"].mT) * (g[:, None, :] - g[:, :, None]).exp() * scale).triu()
        dv = c["k"] @ c["dh"] * (g[:, -1:] - g).exp()[..., None] + scores @ c["do"]
        found.append(dv.transpose(0, 1))
    return {"dv": torch.cat(found)[None]}


class Kernel:
    """One kernel of the installed package.

    Args:
        name: "dqkwg", "dh" or "dv".
    """

    def __init__(self, name: str) -> None:
        self.name = name
        module = importlib.import_module(f"fla.ops.common.chunk_{'h' if name == 'dh' else 'o'}")
        self._whole = getattr(module, f"chunk_bwd_kernel_{name}")
        self._tuner = self._whole
        while not hasattr(self._tuner, "configs"):
            self._tuner = self._tuner.fn
        self._names = set(self._tuner.arg_names)

    def configs(self, width: int) -> list[Config]:
        most = min(max(triton.next_power_of_2(width), 16), 128)
        if self.name == "dh":
            blocks = [(a, b) for a in (64, 32) for b in (64, 32)]
        else:
            blocks = list(dict.fromkeys([(64, 64), (most, most), (64, 128), (32, 32)]))
        warps = (4, 2, 1, 8) if self.name == "dh" else (4, 2, 8)
        return [
            Config(*block, w, stages, scale)
            for scale in (1, 0.1)
            for stages in (3, 2, 4)
            for w in warps
            for block in blocks
        ]

    def answers(self, given: Tensors, config: Config) -> Tensors:
        """What the kernel writes into tensors of NaN."""
        tokens, width = given["q"].shape[1], given["q"].shape[-1]
        chunks = -(-tokens // CHUNK)
        out = {
            "dqkwg": {name: torch.full_like(given["q"], math.nan) for name in ("dq", "dk", "dw")},
            "dh": {"dh": torch.full_like(given["h"], math.nan), "dh0": given["dht"] * math.nan},
            "dv": {"dv": torch.full_like(given["do"], math.nan)},
        }[self.name]
        if self.name == "dqkwg":
            parts = -(-width // config.keys)
            out["dg"] = torch.full((parts, *given["g"].shape), math.nan, device="cuda")
        sizes = {"B": 1, "T": tokens, "H": HEADS, "HQ": HEADS, "HV": HEADS, "K": width, "V": width}
        sizes |= {"BT": CHUNK, "BS": CHUNK, "NG": 1, "scale": config.scale}
        flags = ("USE_GK", "USE_GV", "USE_EXP2", "TRANSPOSE_STATE", "STATE_V_FIRST", "USE_G_GAMMA")
        absent = ("g_gamma", "gk", "gv", "cu_seqlens", "chunk_indices", "split_offsets")
        blocks = {"BK": config.keys, "BV": config.values}
        arguments: dict[str, Any] = {**given, **sizes, **dict.fromkeys(flags, False)}
        arguments |= {**dict.fromkeys(absent), **out, "USE_G": True}
        if "STATE_V_FIRST" in self._names and "USE_EXP2" not in self._names:
            # From 0.5.1 on the decay is a power of two.
            arguments["g"] = given["g"] / math.log(2)
        tuned = blocks if self.name == "dh" else {}
        arguments |= {} if tuned else blocks
        heuristics = {"USE_G", "USE_G_GAMMA"} if self.name != "dh" else set()
        arguments = {n: v for n, v in arguments.items() if n in self._names - heuristics}
        made = triton.Config(tuned, num_warps=config.warps, num_stages=config.stages)
        self._tuner.configs = [made]
        self._tuner.cache.clear()
        over = {"dqkwg": config.keys, "dh": config.keys, "dv": config.values}[self.name]
        grid: tuple[int, ...] = (-(-width // over), chunks, HEADS)
        if self.name == "dh":
            grid = (grid[0], -(-width // config.values), HEADS)
        self._whole[grid](**arguments)
        torch.cuda.synchronize()
        return {name: t.sum(0) if name == "dg" else t for name, t in out.items()}


EXACT: dict[str, Callable[[Tensors, float], Tensors]] = {
    "dqkwg": exact_dqkwg,
    "dh": exact_dh,
    "dv": exact_dv,
}


def measured(kernel: Kernel, given: list[Tensors], config: Config) -> dict[str, float]:
    """Relative error of each gradient, "name@tokens"."""
    errors = {}
    for one in given:
        wanted = EXACT[kernel.name](one, config.scale)
        for name, found in kernel.answers(one, config).items():
            error = (found.double() - wanted[name]).norm() / wanted[name].norm()
            errors[f"{name}@{one['q'].shape[1]}"] = float(f"{float(error):.3g}")
    return errors


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--version", required=True)
    parser.add_argument("--kernel", choices=tuple(EXACT), required=True)
    parser.add_argument("--dtype", default="float16", choices=("float16", "bfloat16"))
    parser.add_argument("--widths", type=int, nargs="+", default=[64])
    parser.add_argument("--seconds", type=float, default=60.0, help="for each width")
    parser.add_argument("--every", type=int, default=1, help="take one configuration of so many")
    options = parser.parse_args()
    kernel, dtype = Kernel(options.kernel), getattr(torch, options.dtype)
    facts = {"version": options.version, "kernel": options.kernel, "dtype": options.dtype}
    for width in options.widths:
        end = time.monotonic() + options.seconds
        given = [draw(tokens, decay, width, dtype) for tokens, decay in DRAWS]
        for config in kernel.configs(width)[:: options.every]:
            if time.monotonic() > end:
                break
            line: dict[str, Any] = {**facts, "width": width, **vars(config)}
            line["scale"] = repr(config.scale)
            dead = False
            try:
                errors = measured(kernel, given, config)
                # Not "any greater": NaN is wrong too.
                right = all(error < WRONG for error in errors.values())
                line |= {"verdict": "right" if right else "WRONG", "errors": errors}
            except Exception as error:
                line |= {"verdict": "raised", "words": f"{type(error).__name__}: {error}"[:200]}
                dead = "CUDA" in str(error)
            print(json.dumps(line), flush=True)
            if dead:
                # A context that has failed fails for ever.
                os._exit(3)


if __name__ == "__main__":
    main()
