"""How sequences are cut into chunks: the tables that the kernels read."""

from __future__ import annotations

import functools
import itertools
from dataclasses import dataclass

import torch
from torch import Tensor

from gated_recurrence.core.scan import CHUNK


@dataclass(frozen=True, slots=True)
class Plan:
    """int32 tables of rows of eight.

    `sequences`: batch, first token, tokens, first chunk; the sequence, three of padding. In
    `longest_first` they stand by their length.

    The chunks: batch, first token, tokens, the sequence + 1 where it is its first chunk and else 0;
    its index, the chunks before and after it in its sequence, the sequence. They stand in the orders
    in which scans reach them, all sequences at once: `forward_order` each from its start, `order`
    each from its end."""

    sequences: Tensor
    longest_first: Tensor
    forward_order: Tensor
    order: Tensor


def rows(batch: int, bounds: tuple[int, ...]) -> tuple[list[list[int]], list[list[int]]]:
    """The tables' rows. Each batch entry holds the same `bounds`."""
    sequences: list[list[int]] = []
    chunks: list[list[int]] = []
    for index in range(batch):
        for first, end in itertools.pairwise(bounds):
            sequences.append([index, first, end - first, len(chunks)])
            chunks += [
                [index, t, min(CHUNK, end - t), 0 if t > first else len(sequences)]
                for t in range(first, end, CHUNK)
            ]
    return sequences, chunks


def order(sequences: list[list[int]], from_end: bool) -> list[int]:
    """Chunk indices by their distance from the start, or the end, of their sequence."""
    found = []
    for _, _, tokens, start in sequences:
        count = -(-tokens // CHUNK)
        found += [(i, start + (count - 1 - i if from_end else i)) for i in range(count)]
    return [chunk for _, chunk in sorted(found)]


def where(sequences: list[list[int]]) -> list[list[int]]:
    """Of each chunk: its index, the chunks before and after it in its sequence, the sequence."""
    found = []
    for sequence, (_, _, tokens, start) in enumerate(sequences):
        count = -(-tokens // CHUNK)
        found += [[start + i, i, count - 1 - i, sequence] for i in range(count)]
    return found


def numbered(sequences: list[list[int]]) -> list[list[int]]:
    """The scans' table, in the order of the backward pass: its gradients wait for the last to start."""
    return [[*row, sequence, 0, 0, 0] for sequence, row in enumerate(sequences)]


def longest_first(sequences: list[list[int]]) -> list[list[int]]:
    """That of the forward pass: of scans that do not all fit at once, none that takes long is late."""
    return sorted(numbered(sequences), key=lambda row: -row[2])


@functools.lru_cache(maxsize=64)
def plan(batch: int, bounds: tuple[int, ...], device: torch.device) -> Plan:
    """The tables on a device; kept, since a training run repeats its shapes."""
    sequences, chunks = rows(batch, bounds)
    places = where(sequences)
    orders = [
        [[*chunks[chunk], *places[chunk]] for chunk in order(sequences, from_end)]
        for from_end in (False, True)
    ]
    scans = numbered(sequences), longest_first(sequences)
    tables = [torch.tensor(x, dtype=torch.int32) for x in (*scans, *orders)]
    return Plan(*(table.to(device) for table in tables))
