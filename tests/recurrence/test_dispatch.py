"""Where the native kernels are required, the portable path is an error, forward and backward."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from gated_recurrence import gated_delta_rule, gla
from gated_recurrence.layers import LAYERS
from gated_recurrence.native import dispatch


def arguments() -> list[Tensor]:
    """q, k, v and g of GLA."""
    x = torch.linspace(0.1, 1.0, 24).view(1, 3, 2, 4)
    return [x, x.flip(1), 1 - x, (-x).requires_grad_()]


@pytest.mark.parametrize("member", LAYERS)
def test_a_portable_forward_is_refused(member: str) -> None:
    layer, x = LAYERS[member](8, 2, 4, 4), torch.ones(1, 3, 8)
    with dispatch.require_native(), pytest.raises(dispatch.NativeRequired, match="native kernels"):
        layer(x)
    assert layer(x)[0].shape == x.shape


def test_a_portable_backward_is_refused() -> None:
    out = gla(*arguments())[0].sum()
    with dispatch.require_native(), pytest.raises(dispatch.NativeRequired, match="backward"):
        out.backward()


def test_the_environment_asks_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GATED_RECURRENCE_REQUIRE_NATIVE", "1")
    with pytest.raises(dispatch.NativeRequired):
        gla(*arguments())
    monkeypatch.setenv("GATED_RECURRENCE_REQUIRE_NATIVE", "0")
    gla(*arguments())


def test_requirements_nest_and_end() -> None:
    with dispatch.require_native():
        with dispatch.require_native():
            assert dispatch.native_required()
        assert dispatch.native_required()
    assert not dispatch.native_required()
    with pytest.raises(KeyError), dispatch.require_native():
        raise KeyError
    assert not dispatch.native_required()


def test_a_member_with_native_kernels_says_why_not() -> None:
    q, k, v, g = arguments()
    with (
        dispatch.require_native(),
        pytest.raises(dispatch.NativeRequired, match=r"gated_delta_rule.*tensors are on cpu"),
    ):
        gated_delta_rule(q, k, v, g[..., 0], q[..., 0])


def test_a_compiler_that_may_not_be_started_is_a_reason_and_no_error(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def forbidden() -> None:
        raise PermissionError(13, "Permission denied", "/usr/local/bin/nvcc")

    monkeypatch.setattr(dispatch.build, "cubins", forbidden)
    dispatch._unbuildable.cache_clear()
    try:
        assert "nvcc" in str(dispatch._unbuildable())
    finally:
        dispatch._unbuildable.cache_clear()
