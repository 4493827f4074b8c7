"""What all layers share: projections, the order of the steps, and the state between calls."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from gated_recurrence.layers.convolution import ShortConvolution
from gated_recurrence.layers.norms import heads_apart
from gated_recurrence.layers.packing import Places, State, places


class Mixer(nn.Module):
    """A layer `[B, T, width]` → `[B, T, width]`.

    `heads` query and key heads of `key` channels, `value_heads` (a multiple; default as many) heads of
    `value` channels. A member says in `mix` what happens between the projected q, k, v and the output
    projection. Projections run in the dtype of their input or of autocast, gates and norms in
    float32 at least, the recurrence in the dtype of q, k, v.
    """

    #: Taps of the short convolution over q, k and v; 0 for none.
    taps = 0
    convolution_bias = False

    def __init__(
        self, width: int, heads: int, key: int, value: int, value_heads: int | None = None
    ) -> None:
        super().__init__()
        self.width, self.heads, self.key, self.value = width, heads, key, value
        self.value_heads = heads if value_heads is None else value_heads
        if self.value_heads % heads:
            raise ValueError(f"value_heads is {value_heads}, not a multiple of heads, {heads}")
        self.sizes = (heads * key, heads * key, self.value_heads * value)
        self.project: nn.Module = nn.Linear(width, sum(self.sizes), bias=False)
        self.convolution = (
            ShortConvolution(sum(self.sizes), self.taps, self.convolution_bias)
            if self.taps
            else None
        )
        self.output = nn.Linear(self.value_heads * value, width, bias=False)

    def forward(
        self, x: Tensor, state: State | None = None, cu_seqlens: Tensor | None = None
    ) -> tuple[Tensor, State]:
        """The output and the state after the last token of each sequence.

        Raises:
            ValueError: `cu_seqlens` with a batch, or shapes that do not fit the recurrence.
        """
        at = places(x, cu_seqlens)
        recent = None if state is None else state.recent
        q, k, v, recent = self.inputs(x, recent, at)
        tokens = x.new_zeros(at.sequences, dtype=torch.int64) if state is None else state.tokens
        start = None if state is None else state.recurrent
        out, recurrent = self.mix(x, q, k, v, tokens[at.sequence] + at.position, start, cu_seqlens)
        y = self.output(out.flatten(-2).to(x.dtype))
        return y, State(recurrent, recent, tokens + at.ends)

    def inputs(
        self, x: Tensor, recent: Tensor | None, at: Places
    ) -> tuple[Tensor, Tensor, Tensor, Tensor | None]:
        """q, k `[B, T, H, K]` and v `[B, T, HV, V]`, and what the next call needs of their inputs."""
        found = self.project(x)
        if self.convolution is not None:
            recent = self.convolution.start(found, at.sequences) if recent is None else recent
            found, recent = self.convolution(found, recent, at)
        q, k, v = found.split(self.sizes, -1)
        heads = self.heads
        return (
            heads_apart(q, heads),
            heads_apart(k, heads),
            heads_apart(v, self.value_heads),
            recent,
        )

    def mix(
        self,
        x: Tensor,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        position: Tensor,
        start: Tensor | None,
        cu_seqlens: Tensor | None,
    ) -> tuple[Tensor, Tensor]:
        """The gated, normalised output `[B, T, HV, V]` and the final states.

        `position` `[B, T]` counts from each sequence's first token; `start` `[N, HV, K, V]`.
        """
        raise NotImplementedError
