"""Program instances that run at once: what races shows, and what atomics order does not."""

from __future__ import annotations

import textwrap

import numpy as np
import pytest

from adjudge.observation import Observation
from adjudge.task import Candidate
from adjudge.worker.client import Call, RunRequest, TensorImage, Zygote

N = 8
X = np.arange(1, N + 1, dtype=np.float32)
HEAD = """
import torch, triton
import triton.language as tl

@triton.jit
def kernel(x, out, aux, N: tl.constexpr):
    i = tl.program_id(0)
"""
TAIL = """
class ModelNew(torch.nn.Module):
    def forward(self, x):
        out = torch.zeros(N, device=x.device)
        aux = torch.zeros(N, device=x.device, dtype=torch.int32)
        kernel[(N,)](x, out, aux, N)
        return out
"""
#: Each instance adds its element to one sum.
LOST = """
total = tl.load(out)
tl.store(out, total + tl.load(x + i))
"""
LOCKED = """
while tl.atomic_cas(aux, 0, 1) == 1:
    pass
total = tl.load(out)
tl.store(out, total + tl.load(x + i))
tl.debug_barrier()
tl.atomic_xchg(aux, 0)
"""
#: Lets everybody past the lock that orders nothing.
RELAXED = LOCKED.replace("(aux, 0, 1)", '(aux, 0, 1, sem="relaxed")').replace(
    "(aux, 0)", '(aux, 0, sem="relaxed")'
)
#: Each instance leaves its part; the last to arrive adds the parts up.
LAST_ARRIVER = """
tl.store(out + i, tl.load(x + i))
tl.debug_barrier()
if tl.atomic_add(aux, 1) == N - 1:
    total = tl.sum(tl.load(out + tl.arange(0, N)))
    tl.store(out, total)
"""
#: The same with the parts left after the count.
TOO_LATE = """
arrived = tl.atomic_add(aux, 1)
tl.store(out + i, tl.load(x + i))
if arrived == N - 1:
    total = tl.sum(tl.load(out + tl.arange(0, N)))
    tl.store(out, total)
"""
APART = "tl.store(out + i, 2 * tl.load(x + i))"
#: Reads its neighbour's place, which still holds what it held, and throws it away.
UNUSED = """
beside = tl.load(out + (i + N - 1) % N)
tl.store(out + i, tl.load(x + i) + beside * 0)
"""


def run(zygote: Zygote, body: str, schedule: str) -> Observation:
    source = HEAD + textwrap.indent(textwrap.dedent(body), "    ") + f"\nN = {N}\n" + TAIL
    worker = zygote.spawn()
    try:
        reply = worker.load(Candidate(name="c", source=source, entry="ModelNew"))
        assert reply.observation is None
        call = Call(args=(TensorImage.plain(X, "float32"),))
        return worker.run(RunRequest(calls=(call,), schedule=schedule), timeout=30.0)
    finally:
        worker.close()


@pytest.mark.parametrize("body", [LOST, RELAXED, TOO_LATE], ids=["lost", "relaxed", "too late"])
def test_an_unordered_read_sees_what_was_there_before(zygote: Zygote, body: str) -> None:
    serial, together = (run(zygote, body, name) for name in ("serial", "simultaneous"))
    assert serial.outputs[0].data[0] == X.sum()
    assert together.outputs[0].data[0] < X.sum()
    assert together.races
    race = together.races[0]
    assert (race.kernel, race.tensor) == ("kernel", "out")
    assert race.instances[0] != race.instances[1]


@pytest.mark.parametrize("body", [LOCKED, LAST_ARRIVER, APART], ids=["lock", "last", "apart"])
def test_ordered_and_separate_accesses_are_no_races(zygote: Zygote, body: str) -> None:
    serial, together = (run(zygote, body, name) for name in ("serial", "simultaneous"))
    assert serial.answered
    assert np.array_equal(serial.outputs[0].data, together.outputs[0].data)
    assert not together.races


def test_a_race_on_an_unused_value_changes_nothing(zygote: Zygote) -> None:
    serial, together = (run(zygote, UNUSED, name) for name in ("serial", "simultaneous"))
    assert together.races
    assert np.array_equal(serial.outputs[0].data, together.outputs[0].data)
