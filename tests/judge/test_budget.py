"""Past the time allowed, comparisons that draw a slow reference dozens of times are not begun."""

from __future__ import annotations

import time
from dataclasses import replace

import pytest

from adjudge.frontends import kernelbench
from adjudge.judge.docket import Docket
from adjudge.judge.scout import scout
from adjudge.judge.verify import Options, running, scene_of
from adjudge.oracle import evaluate
from adjudge.probe import sizes_of
from adjudge.symbols import shrunken
from adjudge.worker.client import Zygote

REFERENCE = """
import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x):
        return torch.exp(x).sum(dim=1)


def get_inputs():
    return [torch.randn(4, 64)]


def get_init_inputs():
    return []
"""
CANDIDATE = """
import torch


class ModelNew(torch.nn.Module):
    def forward(self, x):
        return torch.exp(x).flip(1).cumsum(dim=1)[:, -1]
"""


@pytest.mark.parametrize("long", [True, False])
def test_a_slow_reference_is_not_drawn_past_the_deadline(
    zygote: Zygote, monkeypatch: pytest.MonkeyPatch, long: bool
) -> None:
    monkeypatch.setattr(evaluate, "LONG", 0 if long else 1000)
    program, candidate = kernelbench.from_source(REFERENCE, CANDIDATE, "late")
    options = Options(zygote=zygote)
    with running(candidate, options) as runner:
        scouted = scout(program, sizes_of(shrunken(program)), runner)
        scene = scene_of(program, candidate, scouted, options)
        docket = Docket(scene, scouted.builder, runner, required="")
        last = replace(scene.ordinary, distribution="normal")
        docket.run([scene.ordinary])
        case = docket.builder.build(last)
        docket.record(case, runner.run(case))
        docket.deadline = 0.0
        assert docket.compare(scene.ordinary).ok
        found = docket.compare(last)
    assert found.outcome == ("undecided" if long else "within")
    assert found.reason.startswith("budget") == long


@pytest.mark.parametrize("brief", [True, False])
def test_a_conviction_is_not_confirmed_past_the_deadline_where_that_takes_long(
    zygote: Zygote, monkeypatch: pytest.MonkeyPatch, brief: bool
) -> None:
    monkeypatch.setattr(evaluate, "LONG", 1 << 20 if brief else 64)
    wrong = CANDIDATE.replace("torch.exp(x)", "(torch.exp(x) + 0.01)")
    program, candidate = kernelbench.from_source(REFERENCE, wrong, "late")
    options = Options(zygote=zygote)
    with running(candidate, options) as runner:
        scouted = scout(program, sizes_of(shrunken(program)), runner)
        scene = scene_of(program, candidate, scouted, options)
        docket = Docket(scene, scouted.builder, runner, required="")
        last = replace(scene.ordinary, distribution="negated")
        docket.run([last])
        assert docket.compare(last).outcome == "value"
        docket.deadline = 0.0
        found = docket.confirm(last)
    assert found.outcome == ("value" if brief else "undecided")
    assert brief or found.reason.startswith("budget")


def test_what_is_narrow_is_not_looked_for_once_its_share_of_the_time_is_spent(
    zygote: Zygote,
) -> None:
    program, candidate = kernelbench.from_source(REFERENCE, CANDIDATE, "late")
    options = Options(zygote=zygote)
    with running(candidate, options) as runner:
        scouted = scout(program, sizes_of(shrunken(program)), runner)
        scene = scene_of(program, candidate, scouted, options)
        docket = Docket(
            scene, scouted.builder, runner, required="", deadline=time.monotonic() + 1e6
        )
        assert docket._precision._settled_by is not None
        assert 0.4e6 < docket._precision._settled_by - time.monotonic() < 0.6e6
        docket._precision._settled_by = time.monotonic()
        docket.run([scene.ordinary])
        made = set(docket.observations)
        assert not docket._precision._narrow_sums([scene.ordinary])
    assert set(docket.observations) == made
