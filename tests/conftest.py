"""What tests of every folder share."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import pytest

from adjudge.frontends import kernelbench
from adjudge.judge.cases import CaseBuilder
from adjudge.probe import Probe, sizes_of
from adjudge.worker.client import Zygote


@pytest.fixture(scope="session")
def zygote() -> Iterator[Zygote]:
    """One for the whole session: starting one takes three seconds."""
    with Zygote.start() as running:
        yield running


@pytest.fixture
def usual_test(zygote: Zygote) -> Callable[[str, str], bool]:
    """The field's usual test, of two source texts: five seeds at the native shape, allclose at 1e-2."""

    def accepted(reference: str, candidate: str) -> bool:
        program, source = kernelbench.from_source(reference, candidate, "usual")
        builder = CaseBuilder(program, by_name=bool(program.task.parameters))
        worker = zygote.spawn()
        try:
            assert worker.load(source).observation is None
            for seed in range(5):
                case = builder.build(Probe(sizes=sizes_of(program.task.native), seed=seed))
                observation = worker.run(case.request, timeout=60.0)
                expected = builder.make(case.probe, case.arguments)()(*case.arguments.args)
                if not observation.answered:
                    return False
                got = observation.outputs[0].data
                if got.shape != tuple(expected.shape):
                    return False
                if not np.allclose(got, expected.detach().numpy(), atol=1e-2, rtol=1e-2):
                    return False
            return True
        finally:
            worker.close()

    return accepted
