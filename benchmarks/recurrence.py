"""Gated DeltaNet on a GPU: time, first call, memory and error, ours and the peers that are installed;
and the time of the other members with one gate a head, and of other head sizes.

    python benchmarks/recurrence.py [--peers] [--page docs/recurrence.md]

Peers are FLA and FlashQLA, where they can be imported; their first call tunes for a minute or two. A
time is the median of the launches of one queue, by events, over three input sets in turn, each
greater than the L2 cache at the larger shapes. `--page` rewrites the measured part of that page.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import itertools
import os
import statistics
import time
from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor

from gated_recurrence import (
    delta_rule,
    gated_delta_rule,
    linear_attention,
    retention,
    simple_gla,
)
from gated_recurrence.native import dispatch

Operator = Callable[..., Tensor]
SETS, TURNS = 3, 24
HEAD = 128
# Batch, tokens, heads, and the bounds of packed sequences.
SHAPES: tuple[tuple[int, int, int, tuple[int, ...] | None], ...] = (
    (1, 32768, 32, None),
    (1, 8192, 32, None),
    (8, 2048, 8, None),
    (1, 8192, 32, (0, 1000, 3500, 3564, 8192)),
    (1, 32768, 8, None),
)
# Bytes a second of a device-to-device copy on an H200, reads and writes counted, and operations of a
# product of bfloat16 matrices of 8192 rows and columns of random numbers.
COPY, PRODUCTS = 4.3e12, 7.88e14
CHUNK = 64
MARKS = ("<!-- measured -->\n", "<!-- end of measured -->\n")


def draw(
    batch: int, length: int, heads: int, key_size: int = HEAD, value_size: int = HEAD
) -> list[Tensor]:
    def normal(*shape: int) -> Tensor:
        return torch.randn(shape, device="cuda")

    key = torch.nn.functional.normalize(normal(batch, length, heads, key_size), dim=-1)
    found = [
        normal(batch, length, heads, key_size).bfloat16(),
        key.bfloat16(),
        normal(batch, length, heads, value_size).bfloat16(),
        -0.1 * normal(batch, length, heads).abs(),
        normal(batch, length, heads).sigmoid(),
    ]
    return [x.requires_grad_() for x in found]


def ours(inputs: list[Tensor], bounds: Tensor | None) -> Tensor:
    return gated_delta_rule(*inputs, cu_seqlens=bounds)[0]


def recomputing(inputs: list[Tensor], bounds: Tensor | None) -> Tensor:
    return gated_delta_rule(*inputs, cu_seqlens=bounds, recompute_states=True)[0]


def peers() -> dict[str, Operator]:
    found: dict[str, Operator] = {}
    os.environ["FLA_FLASH_QLA"] = "0"  # FLA's own kernels, not FlashQLA through it
    try:
        from fla.ops.gated_delta_rule import chunk_gated_delta_rule as fla
    except ImportError as reason:
        print(f"no FLA: {reason}")
    else:
        version = importlib.metadata.version("fla-core")
        found[f"FLA {version}"] = lambda x, bounds: fla(*x, cu_seqlens=bounds)[0]
    try:
        from flash_qla import chunk_gated_delta_rule as qla
    except ImportError as reason:
        print(f"no FlashQLA: {reason}")
    else:
        version = importlib.metadata.version("flash-qla")
        found[f"FlashQLA {version}"] = lambda x, bounds: qla(*x, cu_seqlens=bounds)[0]
    return found


def step(operator: Operator, inputs: list[Tensor], bounds: Tensor | None, d_out: Tensor) -> None:
    torch.autograd.grad(operator(inputs, bounds), inputs, d_out, allow_unused=True)


def times(
    operator: Operator, sets: list[list[Tensor]], bounds: Tensor | None, d_out: Tensor
) -> tuple[float, float]:
    """Milliseconds forward and backward."""
    for inputs in sets:
        step(operator, inputs, bounds, d_out)
    events = [[torch.cuda.Event(enable_timing=True) for _ in range(3)] for _ in range(TURNS)]
    torch.cuda.synchronize()
    torch.cuda._sleep(100_000_000)  # the queue fills while this runs, so no launch is waited for
    for marks, inputs in zip(events, itertools.cycle(sets), strict=False):
        marks[0].record()
        out = operator(inputs, bounds)
        marks[1].record()
        torch.autograd.grad(out, inputs, d_out, allow_unused=True)
        marks[2].record()
    torch.cuda.synchronize()
    forward = statistics.median(a.elapsed_time(b) for a, b, _ in events)
    return forward, statistics.median(b.elapsed_time(c) for _, b, c in events)


def peak(operator: Operator, inputs: list[Tensor], bounds: Tensor | None, d_out: Tensor) -> float:
    """GiB above the inputs, at the worst moment of a step."""
    torch.cuda.synchronize()
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    step(operator, inputs, bounds, d_out)
    torch.cuda.synchronize()
    return (torch.cuda.max_memory_allocated() - before) / 2**30


def floors(batch: int, length: int, heads: int) -> tuple[float, float]:
    """Milliseconds that the bytes alone would take: forward, and backward with h recomputed."""
    row = batch * length * heads * HEAD * 2
    state = row * HEAD / CHUNK
    return 4 * row / COPY * 1e3, (4 * row + 3 * row + 4 * state) / COPY * 1e3


def product_floors(batch: int, length: int, heads: int) -> tuple[float, float]:
    """Milliseconds that the products alone would take: forward, and backward with h recomputed.

    Of a chunk and head, by the formulas of the family: forward K S, Q S, Kᵀ U over the state, and
    K Kᵀ, Q Kᵀ, A R, P U over the pairs of tokens. Backward those of U and S' again, then K dS', dO Sᵀ,
    E Sᵀ, U dS'ᵀ, Qᵀ dO, Kᵀ E, and Pᵀ dO, Aᵀ dU, dR Uᵀ, dO Uᵀ, dP K, dPᵀ Q, (N + Nᵀ) K, Q Kᵀ, K Kᵀ.
    """
    count = batch * heads * -(-length // CHUNK)
    over_state, over_pairs = 2 * CHUNK * HEAD * HEAD, 2 * CHUNK * CHUNK * HEAD
    sums = (3 * over_state + 4 * over_pairs, 8 * over_state + 10 * over_pairs)
    forward, backward = (count * operations / PRODUCTS * 1e3 for operations in sums)
    return forward, backward


def by_chunk(x: Tensor) -> Tensor:
    """Norms of the chunks and heads of `[B, T, heads, ...]`: `[B, chunks, heads]`."""
    batch, length, heads = x.shape[:3]
    rows = x.reshape(batch, length, heads, -1).square().sum(-1)
    padded = torch.nn.functional.pad(rows, (0, 0, 0, -length % CHUNK))
    return padded.unflatten(1, (-1, CHUNK)).sum(2).sqrt()


def errors(operators: dict[str, Operator], heads: int = 2) -> list[str]:
    """Two tables of relative RMS errors against float64: of whole tensors, and of the chunk and head
    where it is greatest."""
    length = 2048
    inputs = draw(1, length, heads)
    d_out = torch.randn(1, length, heads, HEAD, device="cuda").bfloat16()

    def run(operator: Operator, given: list[Tensor]) -> list[Tensor]:
        out = operator(given, None)
        return [out, *torch.autograd.grad(out, given, d_out.to(out.dtype))]

    def portable(given: list[Tensor], bounds: Tensor | None) -> Tensor:
        native, dispatch.native = dispatch.native, lambda *_, **__: False
        try:
            return ours(given, bounds)
        finally:
            dispatch.native = native

    doubled = [x.detach().double().requires_grad_() for x in inputs]
    exact = [x.detach() for x in run(portable, doubled)]
    head = ["| | o | dq | dk | dv | dg | dβ |", "| --- | --- | --- | --- | --- | --- | --- |"]
    whole, worst = list(head), list(head)
    for name, operator in {"emulation": portable, **operators}.items():
        found = [x.detach().double() for x in run(operator, inputs)]
        of_all = [(x - y).norm() / y.norm() for x, y in zip(found, exact, strict=True)]
        of_one = [(by_chunk(x - y) / by_chunk(y)).max() for x, y in zip(found, exact, strict=True)]
        for lines, numbers in ((whole, of_all), (worst, of_one)):
            lines.append(f"| {name} | {' | '.join(f'{float(x):.2e}' for x in numbers)} |")
    return [
        *whole,
        "",
        "The chunk and head with the greatest error, relative to itself:",
        "",
        *worst,
    ]


def repeats(operator: Operator, heads: int = 4) -> bool:
    inputs = draw(1, 1000, heads)
    d_out = torch.randn(1, 1000, heads, HEAD, device="cuda").bfloat16()
    first = torch.autograd.grad(operator(inputs, None), inputs, d_out)
    return all(
        all(map(torch.equal, first, torch.autograd.grad(operator(inputs, None), inputs, d_out)))
        for _ in range(100)
    )


def members() -> list[str]:
    """A table of times: the other members with one gate a head, and K, V other than 128."""
    shapes = [(batch, length, heads) for batch, length, heads, packed in SHAPES if packed is None]
    rows: list[tuple[str, int, int, Callable[..., Tensor], bool]] = []
    for name, member, used in (
        ("delta_rule", delta_rule, (0, 1, 2, 4)),
        ("simple_gla", simple_gla, (0, 1, 2, 3)),
        ("linear_attention", linear_attention, (0, 1, 2)),
        ("retention", retention, (0, 1, 2)),
    ):
        for recompute in (False, True):

            def run(
                x: list[Tensor],
                bounds: Tensor | None,
                member: Callable[..., tuple[Tensor, Tensor | None]] = member,
                used: tuple[int, ...] = used,
                recompute: bool = recompute,
            ) -> Tensor:
                given = [x[i] for i in used]
                return member(*given, cu_seqlens=bounds, recompute_states=recompute)[0]

            rows.append((name, HEAD, HEAD, run, recompute))
    rows.append(("gated_delta_rule", 64, 64, ours, False))
    rows.append(("gated_delta_rule", 128, 256, ours, False))
    labels = " | ".join(", ".join(map(str, shape)) for shape in shapes)
    lines = [f"| member | K, V | {labels} |", f"| --- | --- | {'--- | ' * len(shapes)}".rstrip()]
    for name, key, value, operator, recompute in rows:
        cells = []
        for batch, length, heads in shapes:
            sets = [draw(batch, length, heads, key, value) for _ in range(SETS)]
            d_out = torch.randn(batch, length, heads, value, device="cuda").bfloat16()
            cells.append(" / ".join(f"{x:.3f}" for x in times(operator, sets, None, d_out)))
            del sets
            torch.cuda.empty_cache()
        shown = f"{name}, recomputing" if recompute else name
        lines.append(f"| {shown} | {key}, {value} | {' | '.join(cells)} |")
        print(lines[-1], flush=True)
    return lines


def measure(with_peers: bool, seconds: float) -> str:
    """The measured part of the page. No peer begins a shape later than `seconds` from now."""
    start = time.perf_counter()
    assert torch.cuda.is_available(), "this benchmark needs a GPU"
    torch.manual_seed(0)
    operators: dict[str, Operator] = {
        "ours": ours,
        "ours, recomputing": recomputing,
        **(peers() if with_peers else {}),
    }
    lines = [
        f"{time.strftime('%Y-%m-%d')}, {torch.cuda.get_device_name()}, torch {torch.__version__}, "
        f"CUDA {torch.version.cuda}. Milliseconds, forward / backward; the floor is the bytes alone.",
        "",
        f"| B, T, heads | {' | '.join(operators)} | floor | GiB above the inputs |",
        f"| --- | {'--- | ' * (len(operators) + 2)}".rstrip(),
    ]
    firsts: dict[str, float] = {}
    for batch, length, heads, packed in SHAPES:
        sets = [draw(batch, length, heads) for _ in range(SETS)]
        d_out = torch.randn(batch, length, heads, HEAD, device="cuda").bfloat16()
        bounds = None if packed is None else torch.tensor(packed, device="cuda")
        cells, memory = [], []
        for name, operator in operators.items():
            began = time.perf_counter()
            if not name.startswith("ours") and began - start > seconds:
                cells.append("not run")
                memory.append("–")
                continue
            try:
                step(operator, sets[0], bounds, d_out)
                torch.cuda.synchronize()
                firsts.setdefault(name, time.perf_counter() - began)
                forward, backward = times(operator, sets, bounds, d_out)
                cells.append(f"{forward:.3f} / {backward:.3f}")
                memory.append(f"{peak(operator, sets[0], bounds, d_out):.2f}")
            except Exception as reason:  # a peer that refuses a shape is a result
                if name.startswith("ours"):
                    raise
                cells.append(f"refused: {type(reason).__name__}")
                memory.append("–")
        label = f"{batch}, {length}, {heads}" + (f", packed {len(packed) - 1}" if packed else "")
        floor = " / ".join(f"{x:.2f}" for x in floors(batch, length, heads))
        lines.append(f"| {label} | {' | '.join(cells)} | {floor} | {' / '.join(memory)} |")
        print(lines[-1], flush=True)
        del sets
        torch.cuda.empty_cache()
    lines += ["", *members()]
    first = ", ".join(f"{name} {seconds:.1f} s" for name, seconds in firsts.items())
    lines += ["", f"First call of the first shape, build and tuning included: {first}.", ""]
    if time.perf_counter() - start > seconds:
        operators = {"ours": ours}
    lines += ["Relative RMS error against float64, T = 2048, 2 heads:", "", *errors(operators), ""]
    same = ", ".join(f"{name} {'yes' if repeats(f) else 'no'}" for name, f in operators.items())
    lines.append(f"The same bits in 100 repeats: {same}.")
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--peers", action="store_true")
    parser.add_argument("--page", type=Path)
    parser.add_argument("--seconds", type=float, default=1e9, help="no peer begins a shape later")
    options = parser.parse_args()
    text = measure(options.peers, options.seconds)
    print(text)
    if options.page is not None:
        rewrite(options.page, MARKS, text)


def rewrite(path: Path, marks: tuple[str, str], text: str) -> None:
    """Puts the text between the two marks of a page, in place of what is there."""
    head, rest = path.read_text(encoding="utf-8").split(marks[0])
    tail = rest.split(marks[1])[1]
    path.write_text(head + marks[0] + text + marks[1] + tail, encoding="utf-8")


if __name__ == "__main__":
    main()
