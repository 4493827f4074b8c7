"""A small language model: blocks of one member's layer and a gated linear unit."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from gated_recurrence.layers import LAYERS


class Block(nn.Module):
    def __init__(self, member: str, width: int, heads: int, head: int) -> None:
        super().__init__()
        self.before_mixer, self.before_unit = nn.RMSNorm(width), nn.RMSNorm(width)
        self.mixer = LAYERS[member](width, heads, head, head)
        self.up = nn.Linear(width, 4 * width, bias=False)
        self.down = nn.Linear(2 * width, width, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.mixer(self.before_mixer(x))[0]
        gate, value = self.up(self.before_unit(x)).chunk(2, -1)
        return x + self.down(nn.functional.silu(gate) * value)


class Model(nn.Module):
    """Tokens `[B, T]` to logits `[B, T, vocabulary]`.

    Weights are drawn in float64, so that one seed gives the same model in every dtype.
    """

    def __init__(
        self, member: str, vocabulary: int, *, width: int, heads: int, head: int, layers: int
    ) -> None:
        super().__init__()
        before = torch.get_default_dtype()
        torch.set_default_dtype(torch.float64)
        try:
            self.embedding = nn.Embedding(vocabulary, width)
            nn.init.normal_(self.embedding.weight, std=0.02)
            self.blocks = nn.ModuleList(Block(member, width, heads, head) for _ in range(layers))
            self.norm = nn.RMSNorm(width)
            self.head = nn.Linear(width, vocabulary, bias=False)
        finally:
            torch.set_default_dtype(before)

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.embedding(tokens)
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))
