"""The gradient of a gate as the native kernels compute it, in place of the portable path's own.

`dg` is then the reverse sum of `q ∘ dq - k ∘ dk`, with what belongs to a chunk's end. That has up to 1.4
times the error of sums over pairs (docs/design/recurrence.md), and is what the kernels' bar was set by.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import replace
from unittest import mock

import torch
from torch import Tensor

from gated_recurrence.core import chunk as algebra

_backward = algebra.backward


def backward(c: algebra.Chunk, state: Tensor, d_out: Tensor, d_next: Tensor) -> algebra.Gradients:
    found = _backward(c, state, d_out, d_next)
    last = c.log_decay[..., -1:, :]
    update = algebra._solve(c, state).update
    d_k_end = algebra._decay(last - c.log_decay, c.k) * algebra.product(
        update, d_next.mT, c.rounded
    )
    kept = (state * algebra._decay(last, state).mT * d_next).sum(-1)
    d_log = c.q * found.q - c.k * found.k
    at_end = (c.k * d_k_end).sum(-2) + kept
    d_log = torch.cat([d_log[..., :-1, :], d_log[..., -1:, :] + at_end.unsqueeze(-2)], -2)
    if c.erase is not None and found.erase is not None:
        d_log = d_log + c.erase * found.erase
    return replace(found, g=algebra.sum_from(algebra.to_gate(d_log, c.log_decay), strict=False))


@contextlib.contextmanager
def by_difference() -> Iterator[None]:
    """While this is open, backward passes of members without an exclusive sum take that form."""
    with mock.patch.object(algebra, "backward", backward):
        yield
