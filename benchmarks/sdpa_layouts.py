"""Whether `scaled_dot_product_attention` on CUDA depends on how keys and values lie, backend by backend.

    python benchmarks/sdpa_layouts.py [--out sdpa.json] [--seconds 40]

Each call is held to the same attention in float64, and to a twin: the same backend, the same values,
laid out contiguously. Where the twin is right and the call is wrong, the backend is at fault and not
the values, the mask or the reference (case S15, pytorch#191937).
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import json
import math
import random
import time
import warnings
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import scaled_dot_product_attention

BACKENDS = {
    "default": None,
    "math": SDPBackend.MATH,
    "efficient": SDPBackend.EFFICIENT_ATTENTION,
    "flash": SDPBackend.FLASH_ATTENTION,
    "cudnn": SDPBackend.CUDNN_ATTENTION,
}
DTYPES = (torch.bfloat16, torch.float16, torch.float32)
BATCH, HEADS, QUERIES = 2, 4, 65
KEYS = (31, 32, 33, 64, 65, 97, 129, 130, 1025)
WIDTHS = (64, 128, 256)
MASKS = ("none", "boolean", "additive", "additive of one head", "causal")
#: An answer is a mean of values with rounded weights: it errs by a few units of rounding of the largest
#: value. A wrong key costs thousands.
UNITS = 16


def moved(x: Tensor) -> Tensor:
    """Heads inside of positions, as a projection leaves them."""
    return x.transpose(1, 2).contiguous().transpose(1, 2)


def sliced(x: Tensor) -> Tensor:
    """Every second position of a longer tensor."""
    wide = torch.zeros(*x.shape[:2], 2 * x.shape[2], x.shape[3], dtype=x.dtype, device=x.device)
    wide[:, :, ::2] = x
    return wide[:, :, ::2]


def packed(x: Tensor) -> Tensor:
    return x.clone(memory_format=torch.contiguous_format)


LAYOUTS: dict[str, Callable[[Tensor], Tensor]] = {
    "contiguous": lambda x: x,
    "one head for all": lambda x: x[:, :1].expand(x.shape),
    "one batch for all": lambda x: x[:1].expand(x.shape),
    "one position for all": lambda x: x[:, :, :1].expand(x.shape),
    "heads moved": moved,
    "width moved": lambda x: x.mT.contiguous().mT,
    "sliced": sliced,
}


class Call(NamedTuple):
    backend: str
    dtype: str
    width: int
    keys: int
    mask: str
    layout: str


class Seen(NamedTuple):
    call: Call
    error: float
    twin: float
    bound: float
    strides: tuple[int, ...]


def masked(kind: str, keys: int, dtype: torch.dtype) -> dict[str, Any]:
    generator = torch.Generator(device="cuda").manual_seed(keys)
    if kind == "none":
        return {}
    if kind == "causal":
        return {"is_causal": True}
    if kind == "boolean":
        drawn = torch.rand(QUERIES, keys, device="cuda", generator=generator) < 0.7
        drawn[:, 0] = True
        return {"attn_mask": drawn}
    heads = 1 if "one head" in kind else HEADS
    drawn = torch.randn(BATCH, heads, QUERIES, keys, device="cuda", generator=generator)
    return {"attn_mask": drawn.to(dtype).expand(BATCH, HEADS, QUERIES, keys)}


def truth(q: Tensor, k: Tensor, v: Tensor, mask: dict[str, Any]) -> Tensor:
    scores = q.double() @ k.double().mT / math.sqrt(q.shape[-1])
    given = mask.get("attn_mask")
    if mask.get("is_causal"):
        given = torch.ones(scores.shape[-2:], dtype=torch.bool, device=scores.device).tril()
    if given is not None:
        boolean = given.dtype == torch.bool
        scores = scores.masked_fill(~given, -torch.inf) if boolean else scores + given.double()
    return torch.softmax(scores, -1) @ v.double()


def calls(backend: str) -> list[Call]:
    """In an order in which every level comes early, for a run that is out of time."""
    levels = itertools.product(DTYPES, WIDTHS, KEYS, MASKS, LAYOUTS)
    found = [
        Call(backend, str(dtype).removeprefix("torch."), width, keys, mask, layout)
        for dtype, width, keys, mask, layout in levels
    ]
    random.Random(0).shuffle(found)
    return found


def made(call: Call) -> Seen | str:
    """What one call gave, or its refusal."""
    dtype = getattr(torch, call.dtype)
    generator = torch.Generator(device="cuda").manual_seed(1)
    draw = lambda n: torch.randn(  # noqa: E731
        BATCH, HEADS, n, call.width, device="cuda", generator=generator
    ).to(dtype)
    q, k, v = draw(QUERIES), draw(call.keys), draw(call.keys)
    k, v = LAYOUTS[call.layout](k), LAYOUTS[call.layout](v)
    mask = masked(call.mask, call.keys, dtype)
    chosen = BACKENDS[call.backend]
    with torch.no_grad(), contextlib.nullcontext() if chosen is None else sdpa_kernel(chosen):
        try:
            got = scaled_dot_product_attention(q, k, v, **mask)
            twin = scaled_dot_product_attention(q, packed(k), packed(v), **mask)
            torch.cuda.synchronize()
        except RuntimeError as error:
            return str(error).split("\n")[0][:100]
    want = truth(q, k, v, mask)
    off = [float((x.double() - want).abs().max()) for x in (got, twin)]
    bound = UNITS * torch.finfo(dtype).eps / 2 * float(v.double().abs().max())
    if dtype == torch.float32:
        # The products may be of tf32.
        bound = UNITS * 2.0**-11 * float(v.double().abs().max())
    return Seen(call, off[0], off[1], bound, tuple(k.stride()))


def judged(backend: str, until: float) -> tuple[list[Seen], Counter[str], bool]:
    seen: list[Seen] = []
    refused: Counter[str] = Counter()
    for call in calls(backend):
        if time.monotonic() > until:
            return seen, refused, False
        found = made(call)
        if isinstance(found, str):
            refused[found] += 1
        else:
            seen.append(found)
    return seen, refused, True


def wrong(error: float, bound: float) -> bool:
    return not error <= bound


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=None)
    parser.add_argument("--seconds", type=float, default=40.0)
    options = parser.parse_args()
    print(f"torch {torch.__version__}, {torch.cuda.get_device_name()}")
    # Why a backend refuses is counted below.
    warnings.simplefilter("ignore")
    record: list[dict[str, Any]] = []
    start = time.monotonic()
    for number, backend in enumerate(BACKENDS, 1):
        until = start + options.seconds * number / len(BACKENDS)
        seen, refused, whole = judged(backend, until)
        bad = [s for s in seen if wrong(s.error, s.bound)]
        ours = [s for s in bad if wrong(s.twin, s.bound)]
        print(
            f"{backend}: {len(seen)} calls{'' if whole else ' (out of time)'}, "
            f"{sum(refused.values())} refused, {len(bad)} wrong, of them {len(ours)} with a wrong twin; "
            f"largest error of the others "
            f"{max((s.error for s in seen if not wrong(s.error, s.bound)), default=0):.3g}"
        )
        for part in ("dtype", "width", "keys", "mask", "layout"):
            counts = Counter(str(getattr(s.call, part)) for s in bad)
            print(f"    wrong by {part}: {dict(counts)}" if bad else "", end="\n" if bad else "")
        for s in sorted(bad, key=lambda s: -s.error)[:6]:
            print(
                f"    {tuple(s.call)}: off by {s.error:.3g}, its twin by {s.twin:.3g}, {s.strides}"
            )
        for words, count in refused.most_common(2):
            print(f"    refused {count}: {words}")
        record += [s._asdict() | {"call": s.call._asdict()} for s in bad]
    if options.out is not None:
        options.out.write_text(json.dumps(record, indent=0), encoding="utf-8")


if __name__ == "__main__":
    main()
