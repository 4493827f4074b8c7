"""Runs a reference in float64, and adds rounding errors after every primitive op if asked to.

Values are carried in float64 whatever the reference stores them in. What it would have stored them
in, their *logical* dtype, travels beside them, since it decides how large a rounding error is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from typing import Any
from unittest import mock

import numpy as np
import torch
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

LOW = frozenset({torch.float32, torch.float16, torch.bfloat16})
NARROW = frozenset({torch.float16, torch.bfloat16})
_ATTRIBUTE = "_adjudge_logical"
_RANDOM = frozenset(
    {"rand_like", "randn_like", "normal", "normal_functional", "uniform", "bernoulli",
     "native_dropout", "exponential", "multinomial", "random", "log_normal", "cauchy"}
)  # fmt: skip
#: Ops whose float arguments say where to sample rather than what to compute with.
_GEOMETRY = ("upsample", "_upsample", "grid_sampler", "affine_grid")
#: Ops that put a scalar into a stored value unchanged.
_STORING = frozenset({"clamp", "clamp_min", "clamp_max", "full_like", "fill", "masked_fill",
                      "threshold", "hardtanh", "constant_pad_nd", "new_full"})  # fmt: skip


@dataclass(frozen=True, slots=True)
class Op:
    """What must be known of an overload."""

    name: str
    in_place: bool
    mutates: bool
    takes_tensors: bool


@lru_cache(maxsize=2048)
def describe(func: Any) -> Op:
    schema = func._schema
    name = schema.name.split("::")[1]
    in_place = name.endswith("_") and not name.endswith("__")
    takes = any("Tensor" in str(a.type) for a in schema.arguments)
    return Op(name.rstrip("_") if in_place else name, in_place, schema.is_mutable, takes)


def logical(tensor: torch.Tensor, default: torch.dtype) -> torch.dtype:
    found = getattr(tensor, _ATTRIBUTE, None)
    return found if found is not None else default


def mark(tensor: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    setattr(tensor, _ATTRIBUTE, dtype)
    return tensor


def lift(tensor: torch.Tensor) -> torch.Tensor:
    """A float64 tensor of the same values, marked with the dtype they came in."""
    if tensor.is_complex():
        return mark(tensor.to(torch.complex128), torch.float32)
    if not tensor.is_floating_point():
        return tensor
    return mark(tensor.detach().to(torch.float64), tensor.dtype)


Runner = Callable[[Any, Op, Any, Any, torch.dtype], Any]


class Lift(TorchDispatchMode):
    """Args:
    base: the reference's own float dtype.
    primitive: executes one op on lifted arguments and adds its error; None only executes it.
    decompose: replaces a composite op by primitive ones; returns NotImplemented for others.
    """

    def __init__(
        self,
        base: torch.dtype,
        *,
        primitive: Runner | None = None,
        decompose: Callable[[Op, str], Callable[..., Any] | None] | None = None,
    ) -> None:
        super().__init__()
        self.base = base
        self.primitive = primitive
        self.decompose = decompose
        self._restore: list[tuple[torch.Tensor, torch.Tensor]] = []

    def restore(self) -> None:
        """Gives back their own values to foreign tensors that had to be lifted in place."""
        for tensor, data in reversed(self._restore):
            tensor.data = data
        self._restore.clear()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        op = describe(func)
        kwargs = dict(kwargs or {})
        if not op.takes_tensors:
            return self._factory(func, args, kwargs)
        if op.name == "view" and any(isinstance(a, torch.dtype) for a in args):
            raise NotImplementedError("a view of the bits of a float has no float64 counterpart")
        wanted = self._requested(op, args, kwargs)
        kind = self._kind(args)
        args = [self._lifted(a, op, kind, i) for i, a in enumerate(args)]
        kwargs = {k: self._lifted(v, op, kind, -1) for k, v in kwargs.items()}
        if op.name in _RANDOM:
            return self._random(func, op, args, kwargs, kind)
        if wanted is not None and op.name in ("_to_copy", "convert_element_type"):
            return self._cast(func, args, kwargs, kind, wanted)
        if op.name == "copy" and op.in_place and logical(args[0], self.base) in NARROW:
            args[1] = self._narrowed(args[1], kind, logical(args[0], self.base))
        result = self._execute(func, op, args, kwargs, wanted or kind)
        return self._marked(result, wanted or kind)

    def _execute(self, func: Any, op: Op, args: Any, kwargs: Any, kind: torch.dtype) -> Any:
        if self.decompose is not None and (own := self.decompose(op, str(func))) is not None:
            out = kwargs.pop("out", None)
            with self:
                result = own(*args, **kwargs)
            if result is not NotImplemented:
                target = args[0] if op.in_place else out
                return result if target is None else target.copy_(result)
            if out is not None:
                kwargs["out"] = out
        if self.primitive is None:
            result = func(*args, **kwargs)
        else:
            result = self.primitive(func, op, args, kwargs, kind)
        if isinstance(result, torch.Tensor) and result.dtype in LOW and not op.mutates:
            # Integers that became floats on the way, in the default dtype.
            args = [_widened(a) for a in args]
            result = func(*args, **kwargs)
        return result

    def _requested(self, op: Op, args: Any, kwargs: dict[str, Any]) -> torch.dtype | None:
        """The logical dtype that the call names, with the request itself lifted."""
        wanted = kwargs.get("dtype")
        if wanted is None and op.name == "convert_element_type":
            wanted = args[1]
        if wanted in LOW:
            if "dtype" in kwargs:
                kwargs["dtype"] = torch.float64
            return wanted  # type: ignore[no-any-return]
        if wanted is torch.complex64:
            kwargs["dtype"] = torch.complex128
        return self.base if wanted is torch.float64 else None

    def _kind(self, args: Any) -> torch.dtype:
        """The dtype that torch would promote the call's tensors to; a 0-d tensor yields to others."""
        best: dict[bool, torch.dtype] = {}
        for a in args:
            items = a if isinstance(a, (list, tuple)) else (a,)
            for t in items:
                if isinstance(t, torch.Tensor) and t.is_floating_point():
                    default = t.dtype if t.dtype in LOW else self.base
                    kind, zero = logical(t, default), t.ndim == 0
                    seen = best.get(zero)
                    if seen is not kind:
                        best[zero] = kind if seen is None else torch.promote_types(seen, kind)
        return best.get(False) or best.get(True) or self.base

    def _lifted(self, value: Any, op: Op, kind: torch.dtype, position: int) -> Any:
        if isinstance(value, torch.Tensor):
            if value.dtype in LOW or value.dtype is torch.complex64:
                if op.mutates and (position == 0 or position == -1):
                    self._restore.append((value, value.data))
                    before = value.dtype
                    value.data = value.data.to(lift(value).dtype)
                    return mark(value, before)
                return lift(value)
            return value
        if isinstance(value, (list, tuple)) and any(isinstance(v, torch.Tensor) for v in value):
            return [self._lifted(v, op, kind, position) for v in value]
        if type(value) is float and not op.name.startswith(_GEOMETRY):
            return self._scalar(value, op, kind)
        if value is torch.float32 and op.name == "convert_element_type":
            return torch.float64
        return value

    def _scalar(self, value: float, op: Op, kind: torch.dtype) -> float:
        """Kernels take float scalars in float32, or in the stored dtype where they are stored."""
        if self.base is torch.float64:
            return value
        if kind in NARROW and op.name in _STORING:
            return float(torch.tensor(value, dtype=torch.float64).to(kind))
        with np.errstate(over="ignore"):
            return float(np.float32(value))

    def _factory(self, func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
        if kwargs.get("dtype") is torch.float64:
            kwargs["dtype"] = self.base
        result = func(*args, **kwargs)
        if isinstance(result, torch.Tensor) and result.dtype in LOW:
            return lift(result)
        return result

    def _random(self, func: Any, op: Op, args: Any, kwargs: Any, kind: torch.dtype) -> Any:
        """Draws in the native dtype, so that the native run and this one see the same numbers."""
        native = [a.to(kind) if _is_double(a) else a for a in args]
        if kwargs.get("dtype") is torch.float64:
            kwargs["dtype"] = kind
        result = func(*native, **kwargs)
        if op.in_place:
            args[0].copy_(result)
            return args[0]
        if isinstance(result, tuple):
            return tuple(lift(r) for r in result)
        return lift(result) if isinstance(result, torch.Tensor) else result

    def _cast(
        self, func: Any, args: Any, kwargs: Any, kind: torch.dtype, wanted: torch.dtype
    ) -> Any:
        source = args[0]
        if not source.is_floating_point():
            return mark(source.to(torch.float64), wanted)
        return mark(self._narrowed(source, kind, wanted).to(torch.float64, copy=True), wanted)

    def _narrowed(self, x: torch.Tensor, kind: torch.dtype, wanted: torch.dtype) -> torch.Tensor:
        """A deliberate quantisation is kept. With errors it becomes an error of the same size: a
        value near the middle of two numbers may go either way."""
        if wanted not in NARROW or wanted is kind or self.base is wanted:
            return x
        if not x.is_floating_point():
            return x
        if self.primitive is None:
            return x.to(wanted).to(torch.float64)
        op = Op("_quantise", False, False, True)
        return self.primitive(torch.clone, op, [x], {}, wanted)  # type: ignore[no-any-return]

    def _marked(self, result: Any, kind: torch.dtype) -> Any:
        if isinstance(result, torch.Tensor):
            if result.dtype in LOW:
                return lift(result)
            if kind is not self.base and result.is_floating_point():
                mark(result, kind)
            return result
        if isinstance(result, (tuple, list)):
            return type(result)(self._marked(r, kind) for r in result)
        return result


def _is_double(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and value.dtype is torch.float64


def _widened(value: Any) -> Any:
    if isinstance(value, torch.Tensor) and not value.dtype.is_floating_point:
        return value if value.is_complex() or value.dtype is torch.bool else value.double()
    return value


class _Defaults(TorchFunctionMode):
    """Fills in defaults that depend on the dtype, which lifting would change."""

    def __init__(self, base: torch.dtype) -> None:
        super().__init__()
        self.eps = _finfo(base).eps

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = dict(kwargs or {})
        if getattr(func, "__name__", "") == "rms_norm":
            if len(args) > 3 and args[3] is None:
                args = (*args[:3], self.eps, *args[4:])
            elif len(args) <= 3 and kwargs.get("eps") is None:
                kwargs["eps"] = self.eps
        return func(*args, **kwargs)


_finfo = torch.finfo


@contextmanager
def lifted(mode: Lift) -> Iterator[None]:
    """Runs the block in float64, by arithmetic that `mode` can see: no fused attention."""
    from torch.nn.attention import SDPBackend, sdpa_kernel

    def finfo(dtype: torch.dtype | None = None) -> torch.finfo:
        native = dtype is None or dtype is torch.float64
        return _finfo(mode.base if native else dtype)

    fast = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        with (
            mock.patch.object(torch, "finfo", finfo),
            sdpa_kernel(SDPBackend.MATH),
            torch.no_grad(),
            _Defaults(mode.base),
            mode,
        ):
            yield
    finally:
        mode.restore()
        torch.backends.mha.set_fastpath_enabled(fast)


def lift_module(reference: Any) -> Any:
    """Lifts parameters, buffers and plain tensors held by a module, in place."""
    if not isinstance(reference, torch.nn.Module):
        return reference
    for module in reference.modules():
        for tensor in (*module.parameters(recurse=False), *module.buffers(recurse=False)):
            if tensor.dtype in LOW:
                kind = tensor.dtype
                tensor.data = tensor.data.double()
                mark(tensor, kind)
        for name, value in list(vars(module).items()):
            if isinstance(value, torch.Tensor) and value.dtype in LOW:
                setattr(module, name, lift(value))
    return reference
