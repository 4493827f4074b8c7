"""How sequences are cut into chunks: the two tables that the kernels read."""

from __future__ import annotations

import functools
import itertools
from dataclasses import dataclass

import torch
from torch import Tensor

from gated_recurrence.core.scan import CHUNK


@dataclass(frozen=True, slots=True)
class Plan:
    """int32 tables: `sequences` of (batch, first token, tokens, first chunk), `chunks` of (batch,
    first token, tokens, 0)."""

    sequences: Tensor
    chunks: Tensor


def rows(batch: int, bounds: tuple[int, ...]) -> tuple[list[list[int]], list[list[int]]]:
    """The tables' rows. Each batch entry holds the same `bounds`."""
    sequences: list[list[int]] = []
    chunks: list[list[int]] = []
    for index in range(batch):
        for first, end in itertools.pairwise(bounds):
            sequences.append([index, first, end - first, len(chunks)])
            chunks += [[index, t, min(CHUNK, end - t), 0] for t in range(first, end, CHUNK)]
    return sequences, chunks


@functools.lru_cache(maxsize=64)
def plan(batch: int, bounds: tuple[int, ...], device: torch.device) -> Plan:
    """The tables on a device; kept, since a training run repeats its shapes."""
    tables = [torch.tensor(x, dtype=torch.int32).reshape(-1, 4) for x in rows(batch, bounds)]
    return Plan(tables[0].to(device), tables[1].to(device))
