"""Which probes are left out where compiling is dear."""

from __future__ import annotations

from dataclasses import replace

import pytest

from adjudge.calibration import pair
from adjudge.contract import Finding, Outcome
from adjudge.frontends import kernelbench
from adjudge.gates.protocol import Scene
from adjudge.judge.docket import BEYOND
from adjudge.judge.specialisations import Few, tails
from adjudge.judge.verify import Options, _on_compiling, verify
from adjudge.probe import Probe
from adjudge.task import Discovery, Launch
from adjudge.worker.client import Zygote

BASE = Probe(sizes=(("m", 4), ("n", 64)))


def scene(*constants: int) -> Scene:
    texts = pair("stale-output")
    program, candidate = kernelbench.from_source(texts.reference, texts.conforming, "few")
    launch = Launch(kernel="k", grid=(1, 1, 1), constants=tuple(("B", n) for n in constants))
    discovery = Discovery(
        sizes=BASE.sizes,
        base=BASE.sizes,
        native=None,
        launches=(launch,),
        blocks=constants,
        configs=0,
        elements=256,
        seconds=0.0,
        weights="none",
        reference_writes=(),
        differentiable=(),
        gradients=False,
    )
    return Scene(
        task=program.task, candidate=candidate, discovery=discovery, crossed=(), runner="cuda"
    )


def at(**sizes: int) -> Probe:
    return BASE.at({"m": 4, "n": 64} | sizes)


def test_probes_that_compile_alike_are_of_one_class() -> None:
    few = Few(scene(256), [], [BASE])
    for probe in (
        at(m=5),
        at(n=128),
        at(n=0),
        replace(BASE, seed=3),
        replace(BASE, layout="offset"),
    ):
        assert few.has(probe), probe
    for probe in (
        at(m=1),
        at(n=65),
        replace(BASE, dtype="float16"),
        replace(BASE, layout="sliced"),
    ):
        assert not few.has(probe), probe


def test_a_size_that_is_a_constant_has_more_classes() -> None:
    few = Few(scene(64), [], [BASE])
    assert few.has(at(n=48))
    assert not few.has(at(n=128))


def test_the_most_wanted_classes_are_run_and_no_more_than_that() -> None:
    dear = [replace(BASE, layout=name) for name in ("sliced", "padded", "transposed")]
    few = Few(scene(), [[at(n=1), *dear], [at(n=1)], [replace(BASE, dtype="float16")]], [BASE], 3)
    assert few.has(BASE)
    assert few.has(at(n=1))
    assert few.has(replace(BASE, dtype="float16"))
    assert not any(map(few.has, dear))


def test_what_is_always_run_is_run_beyond_the_limit() -> None:
    always = [BASE, *tails(scene(), [at(n=1), at(n=65), at(n=67), at(m=16), at(m=5)])]
    assert always == [BASE, at(n=65), at(m=5)]
    few = Few(scene(), [[at(n=1)]], always, 1)
    assert all(map(few.has, always))
    assert not few.has(at(n=1))


@pytest.mark.parametrize(("left_out", "said"), [(0, False), (3, True)])
def test_a_pass_tells_what_was_left_out(left_out: int, said: bool) -> None:
    finding = Finding(gate="wrong-value", outcome=Outcome.PASS, reason="fine")
    assert bool(_on_compiling(finding, left_out, 9).notes) is said


def test_probes_beyond_the_limit_are_skipped_with_the_reason(
    zygote: Zygote, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The limit belongs to GPUs; here it is put on the interpreter."""
    monkeypatch.setattr(
        "adjudge.judge.verify._Trial._few", lambda self, scene: Few(scene, [], [scene.ordinary], 1)
    )
    texts = pair("stale-output")
    program, candidate = kernelbench.from_source(texts.reference, texts.conforming, "few")
    options = Options(zygote=zygote, gates=("dtype-regime",), examine=False)
    found = verify(program, candidate, options).findings[0]
    assert found.outcome is Outcome.NOT_APPLICABLE
    assert found.reason == BEYOND
