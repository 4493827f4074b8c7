"""Draws the task's inputs: torch's random factories answer from our own counter-based streams.

The author's input function runs unchanged, so whatever it makes of its draws (a softmax, labels in
a range, a triangular mask) still holds; only the draws are ours. Each draw has its own stream,
numbered in order.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any
from unittest import mock

import numpy as np
import numpy.typing as npt
import torch

from adjudge.inputs import values
from adjudge.inputs.levels import ALL_DISTRIBUTIONS
from adjudge.inputs.philox import Stream

Edit = Callable[[npt.NDArray[np.float64]], npt.NDArray[np.float64]]


class Sampler:
    """Values for one probe.

    Args:
        seed: key of the streams.
        distribution: a name of `levels.ALL_DISTRIBUTIONS`.
        edit: number of a float draw, and what to make of its values.
    """

    def __init__(
        self, seed: int, distribution: str = "declared", *, edit: tuple[int, Edit] | None = None
    ) -> None:
        if distribution not in ALL_DISTRIBUTIONS:
            raise ValueError(f"no distribution named {distribution!r}")
        self.seed = seed
        self.distribution = distribution
        #: Draws of float values made so far.
        self.float_draws = 0
        self._draws = 0
        self._edit = edit

    def _stream(self) -> Stream:
        self._draws += 1
        return Stream(self.seed, self._draws - 1)

    def floats(self, shape: Sequence[int], kind: str) -> npt.NDArray[np.float64]:
        """float64 values of `shape`; `kind` is what the author drew: "uniform" or "normal"."""
        shape = tuple(int(n) for n in shape)
        drawn = values.floats(self._stream(), shape, kind, self.distribution, self.float_draws)
        if self._edit is not None and self._edit[0] == self.float_draws:
            drawn = self._edit[1](drawn)
        self.float_draws += 1
        return drawn

    def integers(self, low: int, high: int, shape: Sequence[int]) -> npt.NDArray[np.int64]:
        """int64 values in [low, high)."""
        shape = tuple(int(n) for n in shape)
        return values.integers(self._stream(), int(low), int(high), shape, self.distribution)

    def for_tensor(
        self, shape: Sequence[int], dtype: torch.dtype, low: float, high: float
    ) -> torch.Tensor:
        """Values for a tensor of which only an example is known, within the example's own range
        where that range means something (integers, booleans, values in [0, 1])."""
        if dtype == torch.bool:
            return torch.from_numpy(self.integers(0, 2, shape)).bool()
        if not dtype.is_floating_point:
            return torch.from_numpy(self.integers(int(low), int(high) + 1, shape)).to(dtype)
        unit = 0.0 <= low and high <= 1.0 and low < high  # noqa: SIM300
        return torch.from_numpy(self.floats(shape, "uniform" if unit else "normal")).to(dtype)

    @contextmanager
    def patched(self) -> Iterator[None]:
        """torch's random functions answer from this sampler while the context lasts."""
        with (
            mock.patch.multiple(torch, **self._functions()),  # type: ignore[call-overload]
            mock.patch.multiple(torch.Tensor, **self._methods()),  # type: ignore[call-overload]
        ):
            yield

    def _functions(self) -> dict[str, Callable[..., torch.Tensor]]:
        return {
            "rand": lambda *size, **kw: self._float("uniform", size, kw),
            "randn": lambda *size, **kw: self._float("normal", size, kw),
            "rand_like": lambda t, **kw: self._float("uniform", (t.shape,), _like(t, kw)),
            "randn_like": lambda t, **kw: self._float("normal", (t.shape,), _like(t, kw)),
            "randint": self._randint,
            "randint_like": lambda t, *bounds, **kw: self._randint(
                *bounds, tuple(t.shape), **_like(t, kw)
            ),
            "randperm": self._randperm,
            "normal": self._normal,
            "bernoulli": self._bernoulli,
        }

    def _methods(self) -> dict[str, Callable[..., torch.Tensor]]:
        def fill(kind: str, scale: Callable[..., Any]) -> Callable[..., torch.Tensor]:
            def method(tensor: torch.Tensor, *args: Any, generator: Any = None, **kw: Any) -> Any:
                drawn = torch.from_numpy(scale(self.floats(tensor.shape, kind), *args, **kw))
                return tensor.copy_(drawn)

            return method

        def random_(tensor: torch.Tensor, *bounds: int, generator: Any = None) -> torch.Tensor:
            low, high = (0, *bounds)[-2:] if bounds else (0, 1 << 24)
            return tensor.copy_(torch.from_numpy(self.integers(low, high, tensor.shape)))

        def bernoulli_(tensor: torch.Tensor, p: float = 0.5, generator: Any = None) -> torch.Tensor:
            return tensor.copy_(torch.from_numpy(values.bernoulli(self._stream(), tensor.shape, p)))

        return {
            "normal_": fill("normal", lambda x, mean=0.0, std=1.0: x * std + mean),
            "uniform_": fill("uniform", _between),
            "random_": random_,
            "bernoulli_": bernoulli_,
        }

    def _float(self, kind: str, size: tuple[Any, ...], kw: dict[str, Any]) -> torch.Tensor:
        shape = kw.pop("size", None) or _shape(size)
        return _finish(torch.from_numpy(self.floats(shape, kind)), kw, torch.get_default_dtype())

    def _randint(self, *args: Any, **kw: Any) -> torch.Tensor:
        low, high, size = _randint_arguments(args, kw)
        return _finish(torch.from_numpy(self.integers(low, high, size)), kw, torch.int64)

    def _randperm(self, count: int, **kw: Any) -> torch.Tensor:
        return _finish(torch.from_numpy(self._stream().permutation(count)), kw, torch.int64)

    def _normal(self, mean: Any = 0.0, std: Any = 1.0, size: Any = None, **kw: Any) -> torch.Tensor:
        shape = size
        if shape is None:
            shape = torch.broadcast_shapes(  # type: ignore[no-untyped-call]
                getattr(mean, "shape", torch.Size()), getattr(std, "shape", torch.Size())
            )
        drawn = torch.from_numpy(self.floats(shape, "normal"))
        return _finish(drawn * std + mean, kw, torch.get_default_dtype())

    def _bernoulli(self, p: torch.Tensor, **kw: Any) -> torch.Tensor:
        drawn = torch.from_numpy(values.bernoulli(self._stream(), p.shape, 0.0))
        uniform = torch.from_numpy(self.floats(p.shape, "uniform"))
        return _finish((uniform < p).double() + 0 * drawn, kw, p.dtype)


def _between(x: npt.NDArray[np.float64], a: float = 0.0, b: float = 1.0) -> Any:
    return x * (b - a) + a


def _like(tensor: torch.Tensor, kw: dict[str, Any]) -> dict[str, Any]:
    return {"dtype": tensor.dtype, **kw}


def _shape(size: tuple[Any, ...]) -> tuple[int, ...]:
    if len(size) == 1 and isinstance(size[0], (tuple, list, torch.Size)):
        return tuple(size[0])
    return tuple(size)


def _randint_arguments(args: tuple[Any, ...], kw: dict[str, Any]) -> tuple[int, int, Any]:
    positional = list(args)
    size = kw.pop("size", None)
    if size is None:
        size = positional.pop()
    high = kw.pop("high", None)
    low = kw.pop("low", None)
    if high is None:
        high = positional.pop()
    if low is None:
        low = positional.pop() if positional else 0
    return int(low), int(high), size


def _finish(tensor: torch.Tensor, kw: dict[str, Any], default: torch.dtype) -> torch.Tensor:
    """The drawn values in the dtype that was asked for; always on the CPU, where the judge is."""
    dtype = kw.get("dtype") or default
    out = tensor.to(dtype)
    if kw.get("memory_format") is not None:
        out = out.contiguous(memory_format=kw["memory_format"])
    return out.requires_grad_(bool(kw.get("requires_grad"))) if dtype.is_floating_point else out
