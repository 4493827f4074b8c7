"""Gated DeltaNet beside FLA and FlashQLA, in one run on one GPU: time, first call, memory, error, bits.

    python benchmarks/peers.py [--first FILE | --firsts FILE] [--seconds 240] [--page docs/recurrence.md]

The peers must be installed (fla-core, flash-qla with tilelang). `--first` makes nothing but the first
call of each peer, in processes side by side, and keeps the seconds in the file; the compilers' caches
on disk are then what the run takes that is given the file and measures. FLA tunes in that run again,
with the GPU to itself (FLA_CACHE_RESULTS=0 keeps it from what it chose before). Without the file all
first calls are made in the run, one after the other. `--page` rewrites that part of the page.
"""

from __future__ import annotations

import argparse
import itertools
import json
import subprocess
import sys
import time
from pathlib import Path

import torch

import recurrence
from recurrence import HEAD, SETS, Operator

# Those of the first shape, which errors and repeats are asked with too.
HEADS = 32
# Batch, tokens, heads, bounds of packed sequences; what matters most first, since time may run out.
SHAPES = (
    *(recurrence.SHAPES[0], recurrence.SHAPES[1], recurrence.SHAPES[3]),
    *(recurrence.SHAPES[4], recurrence.SHAPES[2]),
)
# What takes kernels of its own, by the index of a shape: 32 heads, packed, 8 heads.
APART = (0, 2, 3)
# Tokens of one sequence in what is asked of each beside its times, and may take other kernels.
LENGTHS = (8192, 2048, 1000)
ROUNDS = 2
SECONDS = "seconds of the first call: "
MARKS = ("<!-- peers -->\n", "<!-- end of peers -->\n")


def first_call(operator: Operator, length: int = 0, shape: int = 0) -> float:
    """Seconds of a first step at a shape, or at its batch and heads of another length: building,
    compiling and tuning."""
    batch, tokens, heads, packed = SHAPES[shape]
    tokens = length or tokens
    inputs = recurrence.draw(batch, tokens, heads)
    d_out = torch.randn(batch, tokens, heads, HEAD, device="cuda").bfloat16()
    bounds = None if packed is None else torch.tensor(packed, device="cuda")
    torch.cuda.synchronize()
    start = time.perf_counter()
    recurrence.step(operator, inputs, bounds, d_out)
    torch.cuda.synchronize()
    return time.perf_counter() - start


def first_calls(file: Path) -> None:
    """Keeps the seconds of each peer's first call at the first shape, and has it compile what other
    shapes take, each in a process of its own."""
    running = {
        (name, shape): subprocess.Popen(
            [sys.executable, __file__, "--only", name, "--shape", str(shape)],
            stdout=subprocess.PIPE,
            text=True,
        )
        for shape in APART
        for name in recurrence.peers()
    }
    found: dict[str, float] = {}
    for (name, shape), process in running.items():
        said, _ = process.communicate()
        seconds = [line.removeprefix(SECONDS) for line in said.splitlines() if SECONDS in line]
        if seconds and not shape:  # what compilers print lies around it
            found[name] = float(seconds[0])
        print(
            f"first call of {name}, {shown(SHAPES[shape])}: {(*seconds, 'failed')[0]}", flush=True
        )
        file.write_text(json.dumps(found), encoding="utf-8")


def shown(shape: tuple[int, int, int, tuple[int, ...] | None]) -> str:
    batch, length, heads, packed = shape
    return f"{batch}, {length}, {heads}" + (f", packed {len(packed) - 1}" if packed else "")


def measure(seconds: float, before: dict[str, float]) -> str:
    """The measured part of the page. No peer begins a shape later than `seconds` from now; `before` has
    the seconds of first calls that were made already."""
    start = time.perf_counter()
    torch.manual_seed(0)
    peers = recurrence.peers()
    operators: dict[str, Operator] = {
        "ours": recurrence.ours,
        "ours, recomputing": recurrence.recomputing,
        **peers,
    }
    firsts: dict[str, float] = {}
    for name in list(operators):
        try:
            firsts[name] = first_call(operators[name])
        except Exception as reason:  # a peer that does not run here is left out
            if name not in peers:
                raise
            print(f"{name} is left out: {type(reason).__name__}: {reason}", flush=True)
            del operators[name]
            continue
        print(f"first call of {name}: {firsts[name]:.1f} s", flush=True)
    firsts |= before
    lines = [
        f"{time.strftime('%Y-%m-%d')}, {torch.cuda.get_device_name()}, torch {torch.__version__}, "
        f"CUDA {torch.version.cuda}, one run. Milliseconds, forward / backward, by the median of "
        f"{recurrence.TURNS} launches; the better of {ROUNDS} rounds, in which they take turns.",
        "",
        f"| B, T, heads | {' | '.join(operators)} |",
        f"| --- | {'--- | ' * len(operators)}".rstrip(),
    ]
    memory: dict[str, float] = {}
    shares = []
    apart_most = 0.0
    for shape in SHAPES:
        batch, length, heads, packed = shape
        sets = [recurrence.draw(batch, length, heads) for _ in range(SETS)]
        d_out = torch.randn(batch, length, heads, HEAD, device="cuda").bfloat16()
        bounds = None if packed is None else torch.tensor(packed, device="cuda")
        rounds: dict[str, list[tuple[float, float]]] = {name: [] for name in operators}
        refused: dict[str, str] = {}
        for name, operator in itertools.chain(*[operators.items()] * ROUNDS):
            if name in refused or (name in peers and time.perf_counter() - start > seconds):
                continue
            try:
                rounds[name].append(recurrence.times(operator, sets, bounds, d_out))
            except Exception as reason:  # a peer that refuses a shape is a result
                if name not in peers:
                    raise
                refused[name] = f"refused: {type(reason).__name__}"
        for name, operator in operators.items():
            if rounds[name]:
                memory.setdefault(name, recurrence.peak(operator, sets[0], bounds, d_out))
        cells, parts = [], []
        limits = [f(batch, length, heads) for f in (recurrence.floors, recurrence.product_floors)]
        for name, found in rounds.items():
            best = [min(times) for times in zip(*found, strict=True)]
            of_each = [[floor / x for floor, x in zip(f, best, strict=False)] for f in limits]
            of_each = [f"{x:.0%}, {y:.0%}" for x, y in zip(*of_each, strict=True)]
            parts.append(" / ".join(of_each) or "–")
            shown_times = " / ".join(f"{x:.3f}" for x in best)
            cells.append(refused.get(name) or shown_times or "not run")
            for each in zip(*found, strict=True):
                apart_most = max(apart_most, max(each) / min(each) - 1)
        lines.append(f"| {shown(shape)} | {' | '.join(cells)} |")
        print(lines[-1], flush=True)
        floors = " / ".join(f"{x:.2f}, {y:.2f}" for x, y in zip(*limits, strict=True))
        shares.append(f"| {shown(shape)} | {floors} | {' | '.join(parts)} |")
        del sets
        torch.cuda.empty_cache()
    lines += [
        "",
        f"The rounds of one differ by {100 * apart_most:.0f}% at most.",
        "",
        "Milliseconds that the bytes and the products alone would take, forward / backward with the "
        f"states found again ({recurrence.COPY / 1e12:.1f} TB/s, {recurrence.PRODUCTS / 1e12:.0f} "
        "TFLOP/s, both measured), and what share of each one's time they are:",
        "",
        f"| B, T, heads | bytes, products | {' | '.join(operators)} |",
        f"| --- | --- | {'--- | ' * len(operators)}".rstrip(),
        *shares,
        "",
        f"| | {' | '.join(operators)} |",
        f"| --- | {'--- | ' * len(operators)}".rstrip(),
        f"| first call, s | {' | '.join(f'{firsts[name]:.1f}' for name in operators)} |",
        f"| GiB above the inputs at {shown(SHAPES[0])} | "
        f"{' | '.join(f'{memory[n]:.2f}' if n in memory else '–' for n in operators)} |",
    ]
    same = {name: recurrence.repeats(f, HEADS) for name, f in operators.items() if name in memory}
    said = {True: "yes", False: "no", None: "–"}
    lines += [
        f"| the same bits in 100 repeats | {' | '.join(said[same.get(n)] for n in operators)} |",
        "",
        f"Relative RMS error against float64, T = 2048, {HEADS} heads:",
        "",
        *recurrence.errors({name: operators[name] for name in same}, HEADS),
    ]
    if before:
        lines += ["", "The peers' first calls were made beside each other and beside other work."]
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--page", type=Path)
    parser.add_argument("--seconds", type=float, default=1e9, help="no peer begins a shape later")
    parser.add_argument("--first", type=Path, help="only first calls, to this file")
    parser.add_argument("--only", help="only the first call of this peer, in seconds")
    parser.add_argument("--shape", type=int, default=0, help="that --only is asked with")
    parser.add_argument("--firsts", type=Path, help="what --first wrote")
    options = parser.parse_args()
    if options.only:
        operator = recurrence.peers()[options.only]
        print(f"\n{SECONDS}{first_call(operator, shape=options.shape):.2f}", flush=True)
        for length in LENGTHS if not options.shape else ():
            first_call(operator, length)
        return
    if options.first:
        first_calls(options.first)
        return
    before = json.loads(options.firsts.read_text(encoding="utf-8")) if options.firsts else {}
    text = measure(options.seconds, before)
    print(text)
    if options.page is not None:
        recurrence.rewrite(options.page, MARKS, text)


if __name__ == "__main__":
    main()
