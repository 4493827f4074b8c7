"""The gates, in one explicit tuple. A gate's identifier names the offence that it proves."""

from __future__ import annotations

import difflib
from typing import cast

from adjudge.errors import UsageError
from adjudge.gates import (
    bypasses_kernel,
    cancellation,
    drops_nonfinite,
    dtype_regime,
    flushes_subnormal,
    layout_dependent,
    mutates_input,
    narrow_accumulator,
    nondeterministic,
    order_bound,
    out_of_bounds,
    resource_excess,
    retains_state,
    scale_variant,
    schedule_dependent,
    shape_dependent,
    stale_output,
    tampers,
    wrong_gradient,
    wrong_metadata,
    wrong_value,
)
from adjudge.gates.protocol import Gate

#: In the order of reports: what is asked first comes first.
GATES: tuple[Gate, ...] = tuple(
    cast(Gate, module)
    for module in (
        wrong_value,
        wrong_gradient,
        shape_dependent,
        order_bound,
        nondeterministic,
        schedule_dependent,
        dtype_regime,
        narrow_accumulator,
        cancellation,
        scale_variant,
        drops_nonfinite,
        flushes_subnormal,
        out_of_bounds,
        stale_output,
        mutates_input,
        retains_state,
        layout_dependent,
        wrong_metadata,
        resource_excess,
        bypasses_kernel,
        tampers,
    )
)


def gate(identifier: str) -> Gate:
    """The gate of that name.

    Raises:
        UsageError: there is none; the message names the nearest.
    """
    names = [g.CONTRACT.identifier for g in GATES]
    if identifier in names:
        return GATES[names.index(identifier)]
    near = difflib.get_close_matches(identifier, names, n=3, cutoff=0.4)
    hint = f"Did you mean {' or '.join(near)}?" if near else f"The gates are: {', '.join(names)}."
    raise UsageError(f"there is no gate named {identifier!r}", todo=hint)
