"""When a time is believed, decided on made-up spans."""

from __future__ import annotations

import numpy as np
import torch

from adjudge.bench.belief import belief
from adjudge.bench.ring import bit_sum, flipped, pads, ring_of
from adjudge.bench.rounds import Measured, Round, interval
from adjudge.bench.subject import Span
from adjudge.program import Arguments

CALL = 1e-3


def span(count: int, **parts: float) -> Span:
    usual = {
        "place": count * 1e-4, "call": count * CALL + 1e-4, "seal": count * 5e-5,
        "claimed": count * CALL,
    }  # fmt: skip
    return Span(count=count, secret=b"", sums=(), nbytes=8, **{**usual, **parts})


def measured(short: Span, long: Span) -> Measured:
    return Measured((Round(short, long),) * 9)


HONEST = measured(span(4), span(16))


def test_two_honest_measurements_are_believed() -> None:
    found = belief(HONEST, HONEST)
    assert found.reasons == ()
    assert found.hidden == 0.0


def test_what_moves_out_of_the_calls_is_seen() -> None:
    early = measured(span(4, place=4 * CALL), span(16, place=16 * CALL))
    late = measured(span(4, seal=4 * CALL), span(16, seal=16 * CALL))
    slow = measured(span(4, call=12 * CALL), span(16))
    lying = measured(span(4, claimed=4e-5), span(16, claimed=16e-5))
    for subject, words in (
        (early, "before"), (late, "after"), (slow, "short spans"), (lying, "clock disagrees"),
    ):  # fmt: skip
        assert any(words in reason for reason in belief(subject, HONEST).reasons), words


def test_what_disturbs_a_round_disturbs_both_subjects() -> None:
    """Rounds in which placing and sealing take up to nine times as long as usual."""

    def rounds(beyond: float) -> Measured:
        made = []
        for factor in range(1, 10):
            parts = {"place": factor * 1e-4 + beyond, "seal": factor * 5e-5}
            short, long = ({k: n * v for k, v in parts.items()} for n in (4, 16))
            made.append(Round(span(4, **short), span(16, **long)))
        return Measured(tuple(made))

    assert belief(rounds(0.0), rounds(0.0)) == belief(HONEST, HONEST)
    late = belief(rounds(0.1 * CALL), rounds(0.0))
    assert len(late.reasons) == 1
    assert "before the timed calls" in late.reasons[0]
    assert abs(late.hidden / (0.1 * CALL) - 1) < 1e-6


def test_nine_rounds_leave_one_on_each_side() -> None:
    found = interval([float(n) for n in range(9)])
    assert (found.low, found.median, found.high) == (1.0, 4.0, 7.0)


def test_varied_inputs_stay_in_their_binade_and_repeat_from_their_secret() -> None:
    for dtype in (torch.float64, torch.float32, torch.float16, torch.bfloat16):
        given = torch.rand(37, 11).add(0.01).to(dtype)
        pad = pads(b"k" * 16, 3)
        one, other = flipped(given, pad[0]), flipped(given, pad[1])
        assert not torch.equal(one, given)
        assert not torch.equal(one, other)
        assert torch.equal(torch.frexp(one.float())[1], torch.frexp(given.float())[1])
        assert torch.equal(one, flipped(given, pads(b"k" * 16, 3)[0]))


def test_masks_integers_and_what_every_draw_shares_are_not_varied() -> None:
    def draw(seed: int) -> Arguments:
        g = torch.Generator().manual_seed(seed)
        x = torch.randn(64, 64, generator=g)
        mask = (torch.rand(64, 64, generator=g) > 0.5).float()
        labels = torch.randint(0, 9, (64,), generator=g)
        return Arguments(args=(x, x * mask, labels, torch.full((8,), 0.3)))

    assert ring_of([draw(0), draw(1)]).varied == {"args[0]"}


def test_a_seal_is_the_sum_of_words_or_of_bytes() -> None:
    words = np.array([1, -5, 2**62, 2**62], dtype=np.int64)
    assert bit_sum(words.tobytes()) == int(words.sum())
    assert bit_sum(b"\x01\x02\xff") == 258
