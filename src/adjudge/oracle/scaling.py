"""How an answer scales with an input."""

from __future__ import annotations

import numpy as np

from adjudge.oracle.evaluate import Oracle

#: Degrees tried: ratios, norms, products.
_DEGREES = (1, 0, 2, -1, 3, -2)
#: Relative deviation, in float64, past which an answer does not scale. An epsilon inside a root is far
#: above it.
_SAME = 1e-12


def degree(plain: Oracle, scaled: Oracle, special: str) -> int | None:
    """The power in which the answer follows the factor of `special` ("scaled:24@0"), or None.

    Raises:
        OutsideDomain: the reference does not answer.
    """
    power = int(special.removeprefix("scaled:").partition("@")[0])
    pairs = [
        (a.data.astype(np.float64), b.data.astype(np.float64))
        for a, b in zip(plain.exact, scaled.exact, strict=True)
    ]
    if any(a.shape != b.shape or not np.isfinite(a).all() for a, b in pairs):
        return None
    for d in _DEGREES:
        with np.errstate(all="ignore"):
            if all(np.allclose(np.ldexp(a, d * power), b, rtol=_SAME, atol=0.0) for a, b in pairs):
                return d
    return None
