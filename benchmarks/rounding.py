"""Which rounding of the kernels costs how much: an emulation of them on the CPU.

    python benchmarks/rounding.py [--plain] [--gate 0] [--tokens 256] [--heads 64] [--seeds 6]

Of Gated DeltaNet's kernels or, with `--plain`, of those without a delta rule.

Every bfloat16 rounding point of `native/sm90` is here under a name, in the order of the kernels. A row
of the table leaves one out; a cell is the RMS error against float64, as a share of the error of the
portable path (bfloat16 operands, float32 sums), over all seeds. The kernels' bar is
1.1.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable

import torch
from torch import Tensor

from gated_recurrence import gated_delta_rule, simple_gla
from gated_recurrence.native.gated_delta_rule import split_scale

CHUNK, HEAD = 64, 128
NAMES = ("o", "final", "q", "k", "v", "g", "beta")
# Of `identity`: the scans once took A' W and A'^T dU from bfloat16 operands, identity and all.
POINTS = {
    "S": "the state, as an operand and as it is kept",
    "W": "V - e K S, below the identity of A'",
    "U": "U' as it is kept",
    "Ur": "U' on its way into the state",
    "dS": "the state's gradient, as an operand and as it is kept",
    "dU": "dU, below the identity of A'",
    "E": "-e dV on its way into the state's gradient",
    "dV": "dV as it is kept",
    "A": "A' without its identity",
    "dP": "dP",
    "N": "N",
    "tiles": "S and dS' where their product is summed for the gate",
}


def from_here(x: Tensor) -> Tensor:
    """`Σ x_i` over i ≥ t, along the last axis."""
    return x.flip(-1).cumsum(-1).flip(-1)


def before(x: Tensor) -> Tensor:
    """`Σ x_j` over j < t."""
    return torch.nn.functional.pad(x.cumsum(-1)[..., :-1], (1, 0))


def between(pairs: Tensor) -> Tensor:
    """`Σ x_ij` over i ≥ t > j, `[..., C, C]` to `[..., C]`."""
    return from_here(pairs.mT).mT.tril(-1).sum(-1)


def emulate(x: dict[str, Tensor], exact: frozenset[str], identity: bool) -> dict[str, Tensor]:
    """The kernels' answers and gradients, `[heads, T, ...]` float32 for whole chunks of one sequence.

    No rounding at the points in `exact`; `identity` false rounds the operands under A's identity.
    """

    def rounded(name: str, value: Tensor) -> Tensor:
        return value if name in exact else value.bfloat16().float()

    count = x["q"].shape[1] // CHUNK
    split = {n: x[n].unflatten(1, (count, CHUNK)) for n in ("q", "k", "v", "g", "beta", "d_out")}
    below = torch.ones(CHUNK, CHUNK, dtype=torch.bool).tril()
    scale = HEAD**-0.5
    state, kept, out = x["initial_state"], [], []
    for i in range(count):
        q, k, v, g, beta = (split[n][:, i] for n in ("q", "k", "v", "g", "beta"))
        log = g.cumsum(1)
        decay = (log.unsqueeze(2) - log.unsqueeze(1)).masked_fill(~below, -torch.inf).exp()
        e, rest = log.exp().unsqueeze(2), (beta * (log[:, -1:] - log).exp()).unsqueeze(2)
        weights = (scale * decay * beta.unsqueeze(1) * (q @ k.mT)).bfloat16().float()
        inner = (decay * beta.unsqueeze(1) * (k @ k.mT)).tril(-1)
        eye = torch.eye(CHUNK).expand_as(inner)
        solved = torch.linalg.solve_triangular(eye + inner, eye, upper=False, unitriangular=True)
        strict = rounded("A", solved - eye)
        tile = rounded("S", state)
        wide = v - e * (k @ tile)
        narrow = rounded("W", wide)
        update = (wide if identity else narrow) + strict @ narrow
        kept.append((tile, rounded("U", update), decay, e, rest, weights, strict, state))
        out.append(scale * e * (q @ tile) + weights @ rounded("U", update))
        state = e[:, -1:] * state + k.mT @ rounded("Ur", rest * update)
    found = {"o": torch.cat(out, 1).bfloat16().float(), "final": state}
    d_state, parts = x["d_final"], []
    for i in range(count - 1, -1, -1):
        q, k, v, g, beta, d_out = (split[n][:, i] for n in ("q", "k", "v", "g", "beta", "d_out"))
        tile, update, decay, e, rest, weights, strict, state = kept[i]
        d_tile = rounded("dS", d_state)
        wide = rest * (k @ d_tile) + weights.mT @ d_out
        narrow = rounded("dU", wide)
        d_v = (wide if identity else narrow) + strict.mT @ narrow
        ends = (state, d_state) if i == 0 or "tiles" in exact else (tile, d_tile)
        d_state = e[:, -1:] * d_state + q.mT @ (scale * e * d_out).bfloat16().float()
        d_state = d_state + k.mT @ rounded("E", -e * d_v)
        d_v = rounded("dV", d_v)
        by_write = decay * beta.unsqueeze(1)
        by_pair = scale * by_write * (d_out @ update.mT), -(by_write * (d_v @ update.mT)).tril(-1)
        d_weights, d_inner = rounded("dP", by_pair[0]), rounded("N", by_pair[1])
        read, erased = scale * e * (d_out @ tile.mT), -e * (d_v @ tile.mT)
        end = rest * (update @ d_tile.mT)
        d_q, early = read + d_weights @ k, erased + d_inner @ k
        late = end + d_inner.mT @ k + d_weights.mT @ q
        pairs = by_pair[0] * (q @ k.mT) + by_pair[1] * (k @ k.mT)
        d_g = between(pairs) + from_here((q * read).sum(2) + (k * erased).sum(2))
        d_g = d_g + before((k * end).sum(2)) + e[:, -1] * (ends[0] * ends[1]).sum((1, 2))[:, None]
        d_beta = (pairs.sum(1) + (k * end).sum(2)) / beta
        parts.append((d_q.bfloat16().float(), (early + late).bfloat16().float(), d_v, d_g, d_beta))
    pieces = zip(*reversed(parts), strict=True)
    grads = zip(("q", "k", "v", "g", "beta"), pieces, strict=True)
    return found | {name: torch.cat(piece, 1) for name, piece in grads}


# The same without a delta rule.
PLAIN_POINTS = {
    "S": "the state, as an operand and as it is kept",
    "Ur": "diag(r) V on its way into the state",
    "read": "2^n diag(e) dO on its way into the state's gradient",
    "dS": "the state's gradient, as an operand and as it is kept",
    "dP": "dP",
    "tiles": "S and dS' where their product is summed for the gate",
}
REACH = 2  # as in gates.cuh


def emulate_plain(
    x: dict[str, Tensor], exact: frozenset[str], split: bool, neighbours: bool
) -> dict[str, Tensor]:
    """`emulate` without a delta rule.

    `split` false: the accumulators hold dS, not dS / m. `neighbours` false: each chunk's S o dS' is
    summed over its own tiles alone, the last one's too.
    """

    def rounded(name: str, value: Tensor) -> Tensor:
        return value if name in exact else value.bfloat16().float()

    count = x["q"].shape[1] // CHUNK
    parts = {n: x[n].unflatten(1, (count, CHUNK)) for n in ("q", "k", "v", "g", "d_out")}
    below = torch.ones(CHUNK, CHUNK, dtype=torch.bool).tril()
    scale = HEAD**-0.5
    mantissa, power = split_scale(scale) if split else (1.0, scale)
    state, kept, out = x["initial_state"], [], []
    for i in range(count):
        q, k, v, g = (parts[n][:, i] for n in ("q", "k", "v", "g"))
        log = g.cumsum(1)
        decay = (log.unsqueeze(2) - log.unsqueeze(1)).masked_fill(~below, -torch.inf).exp()
        e, rest = log.exp().unsqueeze(2), (log[:, -1:] - log).exp().unsqueeze(2)
        weights = (scale * decay * (q @ k.mT)).bfloat16().float()
        tile = rounded("S", state)
        kept.append((tile, decay, e, rest, weights, state))
        out.append(scale * e * (q @ tile) + weights @ v)
        state = e[:, -1:] * state + k.mT @ rounded("Ur", rest * v)
    found = {"o": torch.cat(out, 1).bfloat16().float(), "final": state}
    d_state, unit = x["d_final"], 1.0
    grads, gates = [], []
    for i in range(count - 1, -1, -1):
        q, k, v, d_out = (parts[n][:, i] for n in ("q", "k", "v", "d_out"))
        tile, decay, e, rest, weights, state = kept[i]
        d_tile = rounded("dS", d_state)
        d_v = unit * rest * (k @ d_tile) + weights.mT @ d_out
        ends = i == 0 or (neighbours and i == count - 1) or "tiles" in exact
        product = (state * d_state if ends else tile * d_tile).sum((1, 2))
        d_weights = rounded("dP", scale * decay * (d_out @ v.mT))
        read = scale * e * (d_out @ tile.mT)
        end = unit * rest * (v @ d_tile.mT)
        d_q, d_k = read + d_weights @ k, end + d_weights.mT @ q
        keys, queries = (k * end).sum((1, 2)), (q * read).sum((1, 2))
        gates.append((unit * e[:, -1, 0] * product, keys, queries, e[:, -1, 0]))
        pairs = scale * decay * (d_out @ v.mT) * (q @ k.mT)
        d_g = between(pairs) + from_here((q * read).sum(2)) + before((k * end).sum(2))
        grads.append((d_q.bfloat16().float(), d_k.bfloat16().float(), d_v.bfloat16().float(), d_g))
        d_state = e[:, -1:] * d_state * (unit / mantissa)
        d_state = d_state + q.mT @ rounded("read", power * e * d_out)
        unit = mantissa
    gates.reverse()
    grads.reverse()
    for i, piece in enumerate(grads):
        piece[3].add_((smoothed(gates, i) if neighbours else gates[i][0])[:, None])
    pieces = list(zip(*grads, strict=True))
    found |= {n: torch.cat(piece, 1) for n, piece in zip(("q", "k", "v"), pieces, strict=False)}
    found["g"] = torch.cat(pieces[3], 1)
    return found


def smoothed(gates: list[tuple[Tensor, Tensor, Tensor, Tensor]], chunk: int) -> Tensor:
    """What gates.cuh finds for a chunk, of each one's E, B, Q and decay."""
    total, _, _, decay = gates[chunk]
    if chunk in (0, len(gates) - 1):
        return total
    weight = torch.ones_like(total)
    for step, there_are in ((1, len(gates) - 1 - chunk), (-1, chunk)):
        between, shift, last = decay, torch.zeros_like(weight), gates[chunk]
        for d in range(1, min(REACH, there_are) + 1):
            following = gates[chunk + step * d]
            between = between * following[3]
            shift = shift + (following[2] - last[1] if step > 0 else following[1] - last[2])
            counts = between * (2 if d == there_are else 1)
            total, weight = total + counts * (following[0] + shift), weight + counts
            last = following
    return total / weight


def draw(tokens: int, heads: int, gate: float, seed: int) -> dict[str, Tensor]:
    """Bfloat16 values where the kernels read bfloat16, heads first."""
    source = torch.Generator().manual_seed(seed)

    def normal(*shape: int) -> Tensor:
        return torch.randn(shape, generator=source)

    wide = [normal(heads, tokens, HEAD).bfloat16().float() for _ in range(3)]
    key = torch.nn.functional.normalize(normal(heads, tokens, HEAD), dim=-1).bfloat16().float()
    return {
        "q": wide[0],
        "k": key,
        "v": wide[1],
        "d_out": wide[2],
        "g": -gate * normal(heads, tokens).abs(),
        "beta": normal(heads, tokens).sigmoid(),
        "initial_state": normal(heads, HEAD, HEAD),
        "d_final": normal(heads, HEAD, HEAD).bfloat16().float(),
    }


def portable(x: dict[str, Tensor], dtype: torch.dtype, plain: bool) -> dict[str, Tensor]:
    """The same of the portable path, in float64 or with bfloat16 products."""
    member: Callable[..., tuple[Tensor, Tensor | None]] = simple_gla if plain else gated_delta_rule
    wide = torch.float64 if dtype == torch.float64 else torch.float32
    leaves = {
        n: x[n].transpose(0, 1)[None].to(dtype if n in ("q", "k", "v") else wide).requires_grad_()
        for n in ("q", "k", "v", "g", "beta")
        if not (plain and n == "beta")
    }
    state = x["initial_state"][None].to(wide)
    o, final = member(**leaves, initial_state=state, output_final_state=True)
    assert final is not None
    cotangents = [x["d_out"].transpose(0, 1)[None].to(o.dtype), x["d_final"][None].to(final.dtype)]
    grads = torch.autograd.grad([o, final], list(leaves.values()), cotangents)
    found = {"o": o, **dict(zip(leaves, grads, strict=True))}
    moved = {n: y.detach()[0].transpose(0, 1).double() for n, y in found.items()}
    return moved | {"final": final.detach()[0].double()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--gate", type=float, default=0.0)
    parser.add_argument("--tokens", type=int, default=256, help="whole chunks of 64")
    parser.add_argument("--heads", type=int, default=64)
    parser.add_argument("--seeds", type=int, default=6)
    parser.add_argument("--plain", action="store_true", help="without a delta rule")
    options = parser.parse_args()
    plain, none = options.plain, frozenset[str]()
    names = NAMES[:-1] if plain else NAMES
    points = PLAIN_POINTS if plain else POINTS
    emulation: Callable[..., dict[str, Tensor]] = emulate_plain if plain else emulate
    variants: dict[str, tuple[object, ...]] = {"the kernels": (none, True, *([True] * plain))}
    if plain:
        variants["S o dS' from each chunk's tiles alone"] = (none, True, False)
        variants["and dS not divided by m"] = (none, False, False)
    else:
        variants["the identity of A' rounded too"] = (none, False)
    for name in points:
        variants[f"without {name}"] = (frozenset({name}), *variants["the kernels"][1:])
    sums = {name: dict.fromkeys(names, 0.0) for name in ("portable", *variants)}
    for seed in range(options.seeds):
        x = draw(options.tokens, options.heads, options.gate, seed)
        want = portable(x, torch.float64, plain)
        answers = {"portable": portable(x, torch.bfloat16, plain)}
        answers |= {name: emulation(x, *how) for name, how in variants.items()}
        for name, answer in answers.items():
            for output in names:
                error = answer[output].double() - want[output]
                sums[name][output] += float(error.square().sum())
    print(f"| | {' | '.join(names)} | |\n| --- | {'--- | ' * (len(names) + 1)}".rstrip())
    for name in variants:
        cells = [f"{(sums[name][n] / sums['portable'][n]) ** 0.5:.2f}" for n in names]
        print(f"| {name} | {' | '.join(cells)} | {points.get(name.split()[-1], '')} |")


if __name__ == "__main__":
    main()
