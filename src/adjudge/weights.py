"""Constructs a module with known weights: the same code serves the reference and the candidate."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from typing import Any
from unittest import mock

import torch

from adjudge import arrays

#: How far a redrawn identity default lies from the default: far enough to show in any precision,
#: near enough to keep variances positive.
SPREAD = 0.25

#: (name, shape, dtype, SHA-256 of the bytes) of one parameter or buffer.
Row = tuple[str, tuple[int, ...], str, str]


def construct(
    factory: Callable[..., Any],
    init_args: Sequence[Any],
    init_kwargs: Mapping[str, Any],
    *,
    seed: int,
    redrawn: bool,
) -> Any:
    """`factory(*init_args, **init_kwargs)` with torch's CPU generator seeded.

    `redrawn` leaves no identity default: initialisers that would fill with ones, zeros or a constant
    fill with values around it, drawn from the same seeded stream on both sides.
    """
    # `torch.manual_seed` also formats a stack for the CUDA seed it keeps for later: 3 ms each time.
    torch.default_generator.manual_seed(seed)
    with _redrawing() if redrawn else nullcontext():
        built = factory(*init_args, **init_kwargs)
    if redrawn and isinstance(built, torch.nn.Module):
        _redraw_buffers(built, seed)
    return built


def described(module: torch.nn.Module) -> list[Row]:
    """(name, shape, dtype, SHA-256 of the bytes) of each parameter and buffer."""
    rows = []
    for name, tensor in module.state_dict().items():
        digest = hashlib.sha256(arrays.to_numpy(tensor).tobytes()).hexdigest()
        rows.append((name, tuple(tensor.shape), arrays.dtype_name(tensor.dtype), digest))
    return rows


@contextmanager
def _redrawing() -> Iterator[None]:
    def around(value: float) -> Callable[..., torch.Tensor]:
        def fill(tensor: torch.Tensor, *_: Any, **__: Any) -> torch.Tensor:
            with torch.no_grad():
                return tensor.uniform_(value - SPREAD, value + SPREAD)

        return fill

    def constant(tensor: torch.Tensor, val: float) -> torch.Tensor:
        width = SPREAD * max(abs(val), 1.0)
        with torch.no_grad():
            return tensor.uniform_(val - width, val + width)

    with mock.patch.multiple(
        torch.nn.init, ones_=around(1.0), zeros_=around(0.0), constant_=constant
    ):
        yield


def _redraw_buffers(module: torch.nn.Module, seed: int) -> None:
    """Running statistics that normalisation layers set without an initialiser."""
    generator = torch.Generator().manual_seed(seed)
    for name, buffer in module.named_buffers():
        if not buffer.is_floating_point() or not buffer.numel():
            continue
        if bool((buffer == buffer.view(-1)[0]).all()):
            drawn = torch.rand(buffer.shape, generator=generator, dtype=torch.float64)
            shift = (drawn - 0.5) * 2 * SPREAD
            positive = name.endswith("running_var")
            with torch.no_grad():
                buffer.copy_(buffer * (1 + shift) if positive else buffer + shift)
