"""What an answer shows of the dtype that it was kept in: all its elements are of a narrower one."""

from __future__ import annotations

from math import ceil, log2
from typing import TYPE_CHECKING, Any

import ml_dtypes
import numpy as np
import numpy.typing as npt

from adjudge.gates.protocol import Comparison
from adjudge.observation import Observation
from adjudge.oracle.statistics import FAMILY_RATE

if TYPE_CHECKING:
    from adjudge.oracle.evaluate import Leaf

#: Different exact values that must all have come out as the narrower dtype's. A float16 lies eight times
#: as dense as a bfloat16; where the exact value is two float16 or more from the nearest bfloat16, an
#: honest answer is less likely than not to be one.
_ENOUGH = ceil(-log2(FAMILY_RATE))
_NORMAL = 2.0**-14


def held_in(observation: Observation) -> str:
    """The regime of the narrowest accumulator that holds every float32 output as it is, "" if none does:
    a sum that nothing was done to shows what it was kept in."""
    for name, dtype in (("bf16xbf16", ml_dtypes.bfloat16), ("fp16xfp16", np.float16)):
        values = [_wide(o.data) for o in observation.outputs if o.dtype == "float32"]
        if values and all(_are(x, dtype).all() for x in values):
            return name
    return ""


def through_bfloat16(
    observation: Observation, native: list[Leaf], exact: list[Leaf]
) -> Comparison | None:
    """Whether a float16 output went through bfloat16: every element is a bfloat16, though the exact
    values are not, nor the native answer's. No bound on the error tells this from an honest answer."""
    for output, ours, truth in zip(observation.outputs, native, exact, strict=True):
        if output.dtype != "float16" or not output.data.size:
            continue
        got, own, right = _wide(output.data), _wide(ours.data), _wide(truth.data)
        with np.errstate(invalid="ignore", over="ignore"):
            shown = np.isfinite(got) & (np.abs(right) >= _NORMAL) & (np.abs(right) < 65504)
            if not _are(got[shown], ml_dtypes.bfloat16).all():
                continue
            spacing = np.abs(np.spacing(np.where(shown, right, 1.0).astype(np.float16)))
            nearest = right.astype(ml_dtypes.bfloat16).astype(np.float64)
            telling = shown & (np.abs(right - nearest) >= 2 * spacing.astype(np.float64))
        different = np.unique(right[telling]).size
        if different < _ENOUGH or _are(own[telling], ml_dtypes.bfloat16).mean() > 0.5:
            continue
        at = np.unravel_index(int(np.argmax(telling)), telling.shape)
        first = tuple(int(i) for i in at)
        return Comparison(
            outcome="value",
            reason="every element of a float16 answer is a bfloat16: it was kept in one on the way",
            where=output.name,
            index=first,
            expected=f"{own[first]:.9g}",
            got=f"{got[first]:.9g}",
            bound=f"{_ENOUGH} different values, none of them by chance",
            affected=int(telling.sum()),
            total=output.data.size,
            exact=True,
        )
    return None


def _are(values: npt.NDArray[Any], dtype: Any) -> npt.NDArray[np.bool_]:
    with np.errstate(over="ignore"):
        kept = values.astype(dtype).astype(np.float64)
    return np.asarray(values == kept)


def _wide(values: npt.NDArray[Any]) -> npt.NDArray[np.float64]:
    return values.astype(np.float64)
