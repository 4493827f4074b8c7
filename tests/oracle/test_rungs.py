"""What is acquitted after few runs, the runs that decide acquit too."""

from __future__ import annotations

import numpy as np
import pytest

from adjudge.oracle.compare import RUNGS, SAMPLES, _implied
from adjudge.oracle.statistics import RMS_MULTIPLE, element_multiple


@pytest.mark.parametrize("samples", RUNGS)
def test_no_later_run_can_convict_what_a_rung_acquits(samples: int) -> None:
    rng = np.random.default_rng(samples)
    elements = 64
    deviations = rng.standard_cauchy((SAMPLES, elements))
    # The least that those after the first can add.
    deviations[samples:] = 0.0
    first = np.sqrt((deviations[:samples] ** 2).mean(0))
    whole = np.sqrt((deviations**2).mean(0))
    multiple, mean_square = _implied(samples, SAMPLES)(elements)
    assert (multiple * first <= element_multiple(SAMPLES, elements) * whole * (1 + 1e-12)).all()
    allowed = mean_square * np.sqrt((first**2).mean())
    assert allowed <= RMS_MULTIPLE * np.sqrt((whole**2).mean()) * (1 + 1e-12)
