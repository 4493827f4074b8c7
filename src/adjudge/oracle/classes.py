"""Classes of value: NaN, +Inf, -Inf and finite."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

FINITE, NAN, PLUS, MINUS = 0, 1, 2, 3
NAMES = ("finite", "NaN", "+Inf", "-Inf")


def classes(values: npt.NDArray[Any]) -> npt.NDArray[np.int8]:
    """The class of every element. A complex number is NaN or +Inf if either part is."""
    found = np.zeros(values.shape, dtype=np.int8)
    if np.isfinite(values).all():
        return found
    if np.iscomplexobj(values):
        found[np.isinf(values)] = PLUS
    else:
        found[values == np.inf] = PLUS
        found[values == -np.inf] = MINUS
    found[np.isnan(values)] = NAN
    return found
