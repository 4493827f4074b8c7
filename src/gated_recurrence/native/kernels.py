"""The kernels that exist, and how each is launched."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Kernel:
    """A function of `source`: its threads and bytes of shared memory a block, the blocks that a
    multiprocessor holds, and whether it may start while the kernel before it, which has said so,
    still runs."""

    source: str
    name: str
    threads: int
    shared: int = 0
    blocks: int = 1
    overlaps: bool = False


# Chunk-heads that a block of gdn_prepare has in hand, 128 threads for each.
GROUPS = 5
CHANNEL_GROUPS = 2  # of channel_prepare, the same
# The sources check these sizes against their own structures when they are compiled.
SHARED = {
    "PREPARE": GROUPS * 34 * 1024,
    "SCANS": 221 * 1024,
    "GRADIENTS": 113 * 1024,
    "CHANNEL_PREPARE": CHANNEL_GROUPS * 111 * 1024,
    "CHANNEL_GRADIENTS": 113 * 1024,
}


@dataclass(frozen=True, slots=True)
class Family:
    """The kernels of some members, in the order in which a step runs them."""

    prepare: Kernel
    forward: Kernel
    states: Kernel
    gradients: Kernel
    gates: Kernel | None = None  # a part of dg, without a delta rule


def _family(name: str, gates: Kernel | None = None) -> Family:
    return Family(
        Kernel(f"{name}_prepare", f"{name}_prepare", 128 * GROUPS, SHARED["PREPARE"]),
        Kernel(f"{name}_scans", f"{name}_forward", 256, SHARED["SCANS"], overlaps=True),
        Kernel(f"{name}_scans", f"{name}_states", 256, SHARED["SCANS"]),
        Kernel(f"{name}_gradients", f"{name}_gradients", 256, SHARED["GRADIENTS"], 2, True),
        gates,
    )


THREADS_PREPARE = 128 * GROUPS
GATE_HEADS = 32  # that a block of simple_gates has in hand, of one chunk
# The same sources compiled with a delta rule and without.
DELTA = _family("gdn")
PLAIN = _family("simple", Kernel("simple_gradients", "simple_gates", 256, overlaps=True))
# With a gate a channel and no delta rule: the scans are the same sources again.
CHANNEL = Family(
    Kernel("channel_prepare", "channel_prepare", 128 * CHANNEL_GROUPS, SHARED["CHANNEL_PREPARE"]),
    Kernel("channel_scans", "channel_forward", 256, SHARED["SCANS"], overlaps=True),
    Kernel("channel_scans", "channel_states", 256, SHARED["SCANS"]),
    Kernel("channel_gradients", "channel_gradients", 256, SHARED["CHANNEL_GRADIENTS"], 2, True),
    Kernel("channel_gradients", "channel_gates", 128),
)

KERNELS = tuple(
    kernel
    for family in (DELTA, PLAIN, CHANNEL)
    for kernel in (
        *(family.prepare, family.forward, family.states),
        *(family.gradients, family.gates),
    )
    if kernel is not None
)
SOURCES = tuple(dict.fromkeys(kernel.source for kernel in KERNELS))
