"""What tests of every folder share."""

from __future__ import annotations

import fcntl
from collections.abc import Callable, Iterator

import numpy as np
import pytest

from adjudge.frontends import kernelbench
from adjudge.judge.cases import CaseBuilder
from adjudge.probe import Probe, sizes_of
from adjudge.worker.client import Zygote


@pytest.fixture(autouse=True)
def turn(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[None]:
    """Tests on a GPU run beside each other in several processes (`-n`); one that takes times is marked
    `alone`, and has the device to itself."""
    if request.node.get_closest_marker("gpu") is None:
        yield
        return
    how = fcntl.LOCK_EX if request.node.get_closest_marker("alone") else fcntl.LOCK_SH
    # The folder above is that of all processes of a run.
    with (tmp_path_factory.getbasetemp().parent / "device.lock").open("w") as lock:
        fcntl.flock(lock, how)
        yield


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
