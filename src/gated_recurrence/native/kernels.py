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
# The sources check these sizes against their own structures when they are compiled.
SHARED = {"PREPARE": GROUPS * 34 * 1024, "SCANS": 221 * 1024, "GRADIENTS": 113 * 1024}

PREPARE = Kernel("gdn_prepare", "gdn_prepare", 128 * GROUPS, SHARED["PREPARE"])
FORWARD = Kernel("gdn_scans", "gdn_forward", 256, SHARED["SCANS"], overlaps=True)
STATES = Kernel("gdn_scans", "gdn_states", 256, SHARED["SCANS"])
GRADIENTS = Kernel("gdn_gradients", "gdn_gradients", 256, SHARED["GRADIENTS"], 2, True)

KERNELS = (PREPARE, FORWARD, STATES, GRADIENTS)
SOURCES = tuple(dict.fromkeys(kernel.source for kernel in KERNELS))
