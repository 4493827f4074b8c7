"""What the small language models learn: recall of pairs, and a generated text."""

from __future__ import annotations

import functools
from dataclasses import dataclass

import torch
from torch import Tensor

# Marks a place whose next token is not asked for.
IGNORED = -100


@dataclass(frozen=True, slots=True)
class Recall:
    """Multi-query associative recall (arXiv 2312.04927): pairs of a key and a value, then keys again,
    each followed by its value. Only the values of the second part are asked for.

    Keys are the lower half of the vocabulary, values the upper.
    """

    vocabulary: int = 256
    pairs: int = 32
    length: int = 256

    def batch(self, size: int, source: torch.Generator) -> tuple[Tensor, Tensor]:
        """Tokens and targets `[size, length]`, int64."""
        half, queries = self.vocabulary // 2, self.length // 2 - self.pairs
        keys = torch.rand(size, half, generator=source).argsort(-1)[:, : self.pairs]
        values = torch.randint(half, self.vocabulary, (size, self.pairs), generator=source)
        asked = torch.randint(0, self.pairs, (size, queries), generator=source)
        order = torch.cat([torch.arange(self.pairs).expand(size, -1), asked], 1)
        tokens = torch.stack([keys.gather(1, order), values.gather(1, order)], -1).flatten(1)
        targets = torch.full_like(tokens, IGNORED)
        targets[:, 2 * self.pairs :: 2] = tokens[:, 2 * self.pairs + 1 :: 2]
        return tokens, targets


NAMES = ("anna", "boris", "clara", "david", "edith", "frank", "greta", "henry")
THINGS = ("stone", "river", "lamp", "horse", "letter", "window", "garden", "coin")
DEEDS = ("sees", "takes", "finds", "leaves", "keeps", "paints")
PLACES = ("home", "north", "below", "away", "inside")


@functools.cache
def story(sentences: int, seed: int) -> str:
    """A text in which a later sentence asks for what an earlier one said: the last word of the second
    sentence of each pair is the thing of the first, and of the third its place."""
    source = torch.Generator().manual_seed(seed)

    def pick(words: tuple[str, ...]) -> str:
        return words[int(torch.randint(len(words), (), generator=source))]

    lines = []
    for _ in range(sentences):
        who, deed, thing, place = pick(NAMES), pick(DEEDS), pick(THINGS), pick(PLACES)
        lines.append(f"{who} {deed} the {thing} {place}. {pick(NAMES)} asks {who} for the {thing}.")
        lines.append(f" {who} went {place}.\n")
    return "".join(lines)


@dataclass(frozen=True, slots=True)
class Text:
    """The next letter of a generated text."""

    length: int = 256
    sentences: int = 4000
    seed: int = 11

    @property
    def letters(self) -> str:
        return "".join(
            sorted(set("\n .".join((*NAMES, *THINGS, *DEEDS, *PLACES, "asks for the went"))))
        )

    @property
    def vocabulary(self) -> int:
        return len(self.letters)

    def batch(self, size: int, source: torch.Generator) -> tuple[Tensor, Tensor]:
        """Tokens and targets `[size, length]`, int64, from random places of the text."""
        coded = _coded(self)
        starts = torch.randint(0, len(coded) - self.length, (size, 1), generator=source)
        window = coded[starts + torch.arange(self.length + 1)]
        return window[:, :-1], window[:, 1:]


@functools.cache
def _coded(task: Text) -> Tensor:
    places = {letter: index for index, letter in enumerate(task.letters)}
    return torch.tensor([places[letter] for letter in story(task.sentences, task.seed)])


Task = Recall | Text
