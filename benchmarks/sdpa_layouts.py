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
import multiprocessing
import os
import random
import time
import warnings
from collections import Counter
from collections.abc import Callable
from multiprocessing import connection
from multiprocessing.connection import Connection
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


#: By the exit status of the process.
DEADLY = {3: "the device did not survive it", 4: "the device did not survive its twin"}


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
        of_twin = False
        try:
            got = scaled_dot_product_attention(q, k, v, **mask)
            torch.cuda.synchronize()
            of_twin = True
            twin = scaled_dot_product_attention(q, packed(k), packed(v), **mask)
            torch.cuda.synchronize()
        except RuntimeError as error:
            if "illegal memory access" in str(error) or "device-side assert" in str(error):
                # The context is lost.
                os._exit(4 if of_twin else 3)
            return str(error).split("\n")[0][:100]
    want = truth(q, k, v, mask)
    off = [float((x.double() - want).abs().max()) for x in (got, twin)]
    bound = UNITS * torch.finfo(dtype).eps / 2 * float(v.double().abs().max())
    if dtype == torch.float32:
        # The products may be of tf32.
        bound = UNITS * 2.0**-11 * float(v.double().abs().max())
    return Seen(call, off[0], off[1], bound, tuple(k.stride()))


def worked(backend: str, first: int, until: float, told: Connection) -> None:
    """Makes the calls from `first` on, and tells of each; ends with what the device does not survive."""
    warnings.simplefilter("ignore")
    for call in calls(backend)[first:]:
        if time.monotonic() > until:
            break
        told.send(made(call))
    told.send(None)


def judged(backends: list[str], seconds: float) -> dict[str, list[Seen | str]]:
    """What each call gave, by backend and in the order of `calls`; backends run beside each other, each
    in a process of its own, and begin anew behind a call that the device did not survive."""
    context = multiprocessing.get_context("fork")
    until = time.monotonic() + seconds
    found: dict[str, list[Seen | str]] = {backend: [] for backend in backends}

    def begun(backend: str) -> tuple[Any, Connection]:
        ours, theirs = context.Pipe(duplex=False)
        first = len(found[backend])
        child = context.Process(target=worked, args=(backend, first, until, theirs))
        child.start()
        # The other end is the child's alone, so that it closes with it.
        theirs.close()
        return child, ours

    children = {backend: begun(backend) for backend in backends}
    while children and time.monotonic() < until + 5:
        connection.wait([told for _, told in children.values()], timeout=0.5)
        for backend, (child, told) in list(children.items()):
            try:
                seen = told.recv() if told.poll() else ()
            except EOFError:
                # What it did not tell of is the call that it ended in.
                child.join()
                found[backend].append(DEADLY.get(child.exitcode, f"status {child.exitcode}"))
                children[backend] = begun(backend)
                continue
            if seen is None:
                del children[backend]
            elif seen != ():
                found[backend].append(seen)
    for child, _ in children.values():
        child.kill()
    return found


def _is_end(words: str) -> bool:
    return words in DEADLY.values() or words.startswith("status ")


def wrong(error: float, bound: float) -> bool:
    return not error <= bound


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=None)
    parser.add_argument("--seconds", type=float, default=40.0)
    parser.add_argument("--backends", default=",".join(BACKENDS))
    options = parser.parse_args()
    record: list[dict[str, Any]] = []
    backends = options.backends.split(",")
    for backend, answers in judged(backends, options.seconds).items():
        made_of = list(zip(calls(backend), answers, strict=False))
        seen = [s for _, s in made_of if isinstance(s, Seen)]
        bad = [s for s in seen if wrong(s.error, s.bound)]
        ends = [(c, s) for c, s in made_of if isinstance(s, str) and _is_end(s)]
        deadly = [call for call, _ in ends]
        refused = Counter(s for _, s in made_of if isinstance(s, str) and not _is_end(s))
        print(
            f"{backend}: {len(made_of)} of {len(calls(backend))} calls, {sum(refused.values())} "
            f"refused, {len(deadly)} deadly, {len(bad)} wrong, of them "
            f"{sum(wrong(s.twin, s.bound) for s in bad)} with a wrong twin; largest error of the "
            f"others {max((s.error for s in seen if not wrong(s.error, s.bound)), default=0):.3g}"
        )
        for name, calls_of in (("wrong", [s.call for s in bad]), ("deadly", deadly)):
            for part in ("dtype", "width", "keys", "mask", "layout") if calls_of else ():
                print(f"    {name} by {part}: {dict(Counter(getattr(c, part) for c in calls_of))}")
        for call, words in ends[:6]:
            print(f"    {tuple(call)}: {words}")
        for s in sorted(bad, key=lambda s: -s.error)[:6]:
            print(
                f"    {tuple(s.call)}: off by {s.error:.3g}, its twin by {s.twin:.3g}, {s.strides}"
            )
        for words, count in refused.most_common(2):
            print(f"    refused {count}: {words}")
        record += [s._asdict() | {"call": s.call._asdict()} for s in bad]
        record += [{"call": call._asdict(), "deadly": True} for call in deadly]
    if options.out is not None:
        options.out.write_text(json.dumps(record, indent=0), encoding="utf-8")


if __name__ == "__main__":
    main()
