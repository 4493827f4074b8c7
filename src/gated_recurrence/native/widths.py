"""Other head sizes on kernels of one: fewer channels than `HEAD` get zeroes, more V get more heads.

Both are exact: a zero channel adds zero to every product, and columns of the state over V do not see
one another, so a value head with n times `HEAD` channels is n heads that share its gates. What it
costs is the time of the padded shape, and a copy of each tensor that changes.
"""

from __future__ import annotations

import torch
from torch import Tensor

from gated_recurrence.native.dispatch import HEAD


def heads_for(value: int) -> int:
    """The kernels' heads that one value head of `value` channels takes."""
    return -(-value // HEAD)


def wide(x: Tensor, channels: int) -> Tensor:
    """`x` with zeroes up to `channels` in its last axis."""
    short = channels - x.shape[-1]
    return torch.nn.functional.pad(x, (0, short)) if short else x


def split_values(v: Tensor) -> Tensor:
    """`[B, T, HV, V]` to `[B, T, HV n, HEAD]`."""
    count = heads_for(v.shape[-1])
    return wide(v, count * HEAD).reshape(*v.shape[:2], v.shape[2] * count, HEAD)


def split_gate(g: Tensor, value: int) -> Tensor:
    """`[B, T, HV]` to `[B, T, HV n]`."""
    count = heads_for(value)
    return g if count == 1 else g.repeat_interleave(count, dim=2)


def split_state(state: Tensor) -> Tensor:
    """`[N, HV, K, V]` to `[N, HV n, HEAD, HEAD]`."""
    count, short = heads_for(state.shape[-1]), HEAD - state.shape[-2]
    state = torch.nn.functional.pad(wide(state, count * HEAD), (0, 0, 0, short))
    sequences, heads = state.shape[:2]
    split = state.reshape(sequences, heads, HEAD, count, HEAD).movedim(3, 2)
    return split.reshape(sequences, heads * count, HEAD, HEAD)


def join_values(o: Tensor, value: int) -> Tensor:
    """The inverse of `split_values`."""
    heads = o.shape[2] // heads_for(value)
    return o.reshape(*o.shape[:2], heads, -1)[..., :value]


def join_state(state: Tensor, key: int, value: int) -> Tensor:
    """The inverse of `split_state`."""
    sequences, count = state.shape[0], heads_for(value)
    joined = state.reshape(sequences, -1, count, HEAD, HEAD).movedim(2, 3)
    return joined.reshape(sequences, -1, HEAD, count * HEAD)[:, :, :key, :value]
