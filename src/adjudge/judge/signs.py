"""Signs of a fault that cost next to nothing: one evaluation of the reference, and no envelope.

They say what to weigh first, and convict nobody: an honest run may show one, and a fault may show none.
"""

from __future__ import annotations

import numpy as np
import torch

from adjudge import arrays
from adjudge.gates.reading import ESCAPES, State, same_bits, state
from adjudge.judge.docket import Docket
from adjudge.observation import Observation
from adjudge.oracle import Oracle
from adjudge.oracle.compare import classes, equal_bits, metadata
from adjudge.probe import Probe
from adjudge.program import OutsideDomain

#: An error is gross from this part of the largest element on, and from so many times the native
#: reference's own. One rounding to tf32 is smaller by a factor of 2**3; where honest errors are as
#: large, looking closer costs some milliseconds.
PART, TIMES = 2.0**-8, 64.0

#: Two runs that differ in these owe each other their bits.
_SAME_BITS = ("fill", "guard", "schedule", "history", "process", "repeat")


def shows(docket: Docket, probe: Probe) -> bool:
    """Whether the run of a probe, if it was made, shows a sign of a fault."""
    observation = docket.observations.get(probe)
    if observation is None:
        return False
    if not observation.answered:
        return observation.status in ESCAPES or state(docket, probe) is State.BROKEN
    return (
        _misbehaves(docket, probe, observation) or _moved(docket, probe, observation)
        or _far_off(docket, probe, observation)
    )  # fmt: skip


def _misbehaves(docket: Docket, probe: Probe, observation: Observation) -> bool:
    writes = docket.scene.discovery.reference_writes
    changed = {*observation.mutated_inputs, *observation.mutated_parameters}.difference(writes)
    aliases = any(output.aliases or output.aliases_previous for output in observation.outputs)
    aliases = aliases or observation.earlier_output_changed
    return bool(
        observation.faults or observation.races or observation.tampering or changed
        or (aliases and not docket.reference_aliases(probe))
    )  # fmt: skip


def _moved(docket: Docket, probe: Probe, observation: Observation) -> bool:
    plain = docket.observations.get(probe.without(_SAME_BITS))
    return plain is not None and plain.answered and not same_bits(plain, observation)


def _far_off(docket: Docket, probe: Probe, observation: Observation) -> bool:
    try:
        oracle = docket.oracle(probe)
        if metadata(observation, oracle.native, oracle.structure) is not None:
            return True
        return not equal_bits(observation, oracle.native) and far_off(observation, oracle)
    except OutsideDomain:
        return False


def far_off(observation: Observation, oracle: Oracle) -> bool:
    """Whether an element is of another class than in both answers of the reference, or off by a gross
    error. The outputs have the reference's shapes and dtypes.

    Raises:
        OutsideDomain: the reference does not answer.
    """
    for output, native, exact in zip(observation.outputs, oracle.native, oracle.exact, strict=True):
        got, ours, truth = (a.astype(np.float64) for a in (output.data, native.data, exact.data))
        kind = arrays.torch_dtype(output.dtype)
        if not kind.is_floating_point:
            if ((got != ours) & (got != truth)).any():
                return True
            continue
        definite = classes(ours) == classes(truth)
        if (definite & (classes(got) != classes(truth))).any():
            return True
        finite = np.isfinite(truth) & np.isfinite(got) & np.isfinite(ours)
        if not finite.any():
            continue
        error, own = np.abs(got - truth)[finite], np.abs(ours - truth)[finite]
        part = max(PART, 8 * float(torch.finfo(kind).eps)) * float(np.abs(truth[finite]).max())
        if error.max() > part + TIMES * own.max():
            return True
    return False
