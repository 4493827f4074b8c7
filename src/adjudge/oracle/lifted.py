"""Runs a program in float64, whatever it asks for, and with rounding errors where told to.

Casts to the task's own float dtype are lifted to float64; casts to a narrower one are deliberate
quantisation and kept.
"""

from __future__ import annotations

import contextlib
import functools
import operator
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

import torch
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_leaves, tree_map

from adjudge.dispatch import Uncompiled
from adjudge.oracle import backward, rules
from adjudge.oracle.decompositions import TABLE

aten = torch.ops.aten
_RULES = {**rules.SPECIAL, **backward.RULES}
_EXACT = rules.EXACT | backward.EXACT
#: The spacing of the dtype that a program runs in, where it asks for that (`nn.RMSNorm` without an
#: epsilon does), and what it gets in float32 or less.
_FINEST, _OWN = torch.finfo(torch.float64).eps, torch.finfo(torch.float32).eps
#: Norms, of which the library's own may divide by the largest element first, or square nothing.
_NORMS = (
    aten.linalg_vector_norm.default,
    aten.norm.ScalarOpt_dim,
    aten.norm.Scalar,
    aten._cdist_forward.default,
)
_FLOATS = (torch.float64, torch.float32, torch.float16, torch.bfloat16)


@cache
def _core() -> dict[Any, Callable[..., Any]]:
    """PyTorch's own decompositions, for the long tail."""
    from torch._decomp import core_aten_decompositions

    table = dict(core_aten_decompositions())
    return {op: fn for op, fn in table.items() if isinstance(op, torch._ops.OpOverload)}


class Lifted(Uncompiled):  # type: ignore[no-untyped-call]
    """Float64 evaluation; with `noise`, every primitive operation errs as the regime allows."""

    def __init__(self, native: torch.dtype, noise: rules.Noise | None = None) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._native = native
        self._noise = noise
        #: Names of all primitive operations met, how many there were, and the elements they read.
        self.met: set[str] = set()
        #: Those among them whose error no rule bounds.
        self.unruled: set[str] = set()
        self.count = 0
        self.read = 0

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        kwargs = self._lift_dtype(kwargs or {}, args)
        if any(map(_is_finest, args)) and self._native is not torch.float64:
            args = tuple(_OWN if _is_finest(a) else a for a in args)
        if any(map(_needs_widening, args)):
            args = tree_map(_widened, args)
        if any(map(_needs_widening, kwargs.values())):
            kwargs = tree_map(_widened, kwargs)
        return self._run(func, args, kwargs)

    def _run(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        name, in_place = _named(func)
        self.met.add(name)
        self.count += 1
        self.read += sum(arg.numel() for arg in args if isinstance(arg, torch.Tensor))
        if in_place:
            return self._in_place(func, name, args, kwargs)
        if self._noise is None:
            return self._quantised(func, args, kwargs)
        steps = name in rules.STEPS or _narrows(kwargs.get("dtype"))
        if steps and args and _is_float(args[0]):
            args = (self._noise.before_step(args[0], self._native), *args[1:])
        if name == "_to_copy" or name == "convert_element_type":
            return self._quantised(func, args, kwargs)
        if func in TABLE:
            with self:
                return TABLE[func](*args, **kwargs)
        if func in _RULES and _is_float(args[0]):
            return _RULES[func](self._noise, func, *args, **kwargs)
        if name in _EXACT:
            return func(*args, **kwargs)
        if name in rules.FUNCTIONS:
            out = self._noisy(func(*args, **kwargs), rules.FUNCTIONS[name])
            kept = self._noise.applied(name, *args)
            return out if kept is None else torch.where(kept, out, torch.nan)
        return self._composite(func, name, args, kwargs)

    def _composite(
        self, func: Any, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        if func in _core():
            with contextlib.suppress(NotImplementedError), self:
                out = _core()[func](*args, **kwargs)
                if out is not NotImplemented:
                    return out
        if torch._C._dispatch_has_kernel_for_dispatch_key(
            func.name(), torch._C.DispatchKey.CompositeImplicitAutograd
        ):
            with self:
                return func.decompose(*args, **kwargs)
        # No rule: a handful of roundings, and the sum's law is unknown.
        out = func(*args, **kwargs)
        if any(map(_is_float, tree_leaves(out))):
            self.unruled.add(name)
        return self._noisy(out, 4.0)

    def _noisy(self, out: Any, weight: float) -> Any:
        assert self._noise is not None
        noise = self._noise

        def one(value: Any) -> Any:
            return noise.stored(value, weight) if _is_float(value) and weight else value

        return one(out) if isinstance(out, torch.Tensor) else tree_map(one, out)

    def _in_place(self, func: Any, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        packet = getattr(aten, name[:-1], None)
        overload = getattr(packet, func._overloadname, None) if packet is not None else None
        if overload is None or not _is_float(args[0]):
            return func(*args, **kwargs)
        out = self._run(overload, args, kwargs)
        args[0].copy_(out)
        return args[0]

    def _quantised(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        narrow = kwargs.get("dtype")
        if narrow in (torch.float16, torch.bfloat16) and func is aten._to_copy.default:
            return args[0].to(narrow).to(torch.float64)
        return func(*args, **kwargs)

    def _lift_dtype(self, kwargs: dict[str, Any], args: tuple[Any, ...]) -> dict[str, Any]:
        wanted = kwargs.get("dtype")
        if wanted is torch.float32 or (wanted in _FLOATS and wanted is self._native):
            return {**kwargs, "dtype": torch.float64}
        return kwargs


class Textbook(Uncompiled):  # type: ignore[no-untyped-call]
    """Native evaluation in which norms take their textbook form: they square, add and take the root,
    where the library may have a way round an overflow."""

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        if func not in _NORMS:
            return func(*args, **(kwargs or {}))
        with self:
            return TABLE[func](*args, **(kwargs or {}))


class Annihilating(Lifted):  # type: ignore[no-untyped-call]
    """Float64 evaluation in which zero times anything is zero.

    IEEE gives NaN for zero times infinity. A kernel that skips what a mask, a triangle or padding
    makes zero never forms that product, and is right too.
    """

    def __init__(self, native: torch.dtype) -> None:
        super().__init__(native, rules.Silence())

    def _run(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if func in _BILINEAR and _holds_nonfinite(args[:2]):
            return _contraction(func, *args)
        out = super()._run(func, args, kwargs)
        if func is aten.mul.Tensor:
            # Either factor may be a Python number.
            zero = torch.isnan(out) & functools.reduce(operator.or_, (a == 0 for a in args))
            return torch.where(zero, torch.zeros_like(out), out)
        return out


_BILINEAR = frozenset(
    (
        aten.mm.default,
        aten.bmm.default,
        aten.mv.default,
        aten.dot.default,
        aten.convolution.default,
    )
)


def _holds_nonfinite(tensors: tuple[Any, ...]) -> bool:
    return any(_is_float(t) and not bool(torch.isfinite(t).all()) for t in tensors)


def _contraction(func: Any, a: torch.Tensor, b: torch.Tensor, *rest: Any) -> torch.Tensor:
    """A contraction from its finite part and from counts of the infinite and undefined terms."""
    bias = rest[0] if func is aten.convolution.default else None
    settings = (None, *rest[1:]) if func is aten.convolution.default else rest

    def product(left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = func(left.double(), right.double(), *settings)
        return out

    def finite(x: torch.Tensor) -> torch.Tensor:
        return torch.where(torch.isfinite(x), x, torch.zeros_like(x))

    def terms(sign: int) -> torch.Tensor:
        """How many terms are infinite with that sign."""
        up, down = a * sign == torch.inf, a * sign == -torch.inf
        total = product(up, b > 0) + product(down, b < 0)
        up, down = b * sign == torch.inf, b * sign == -torch.inf
        whole = torch.isfinite(a)
        return total + product((a > 0) & whole, up) + product((a < 0) & whole, down)

    out = product(finite(a), finite(b))
    above, below = terms(1) > 0, terms(-1) > 0
    undefined = product(torch.isnan(a), b != 0) + product(a != 0, torch.isnan(b)) > 0
    out = torch.where(above, torch.inf, torch.where(below, -torch.inf, out))
    out = torch.where((above & below) | undefined, torch.nan, out)
    return out if bias is None else out + bias.reshape(1, -1, *[1] * (out.dim() - 2))


_NARROW = frozenset(_FLOATS) - {torch.float64}


def _needs_widening(value: Any) -> bool:
    # Walking every argument as a tree would be half the oracle's time.
    if isinstance(value, torch.Tensor):
        return value.dtype in _NARROW
    return isinstance(value, (list, tuple)) and any(map(_needs_widening, value))


class Widening(TorchFunctionMode):
    """Widens constants that a program holds by itself, before torch compares dtypes.

    Parameters are widened with their module and inputs by the oracle; a tensor that a function closes
    over, or a module keeps in a plain attribute, meets them as float32, and some operations
    (convolutions) refuse the mixture before they dispatch.
    """

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        kwargs = kwargs or {}
        kinds = {t.dtype for t in tree_leaves((args, kwargs)) if isinstance(t, torch.Tensor)}
        if torch.float64 in kinds and len(kinds.intersection(_FLOATS)) > 1:
            args, kwargs = tree_map(_widened, args), tree_map(_widened, kwargs)
        return func(*args, **kwargs)


def _widened(value: Any) -> Any:
    """Tensors that came in by another door (constants of the module) are widened on sight."""
    if isinstance(value, torch.Tensor) and value.dtype in _NARROW:
        return value.to(torch.float64)
    return value


def _is_finest(value: Any) -> bool:
    return type(value) is float and value == _FINEST


def _is_float(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and value.dtype == torch.float64


def _narrows(dtype: torch.dtype | None) -> bool:
    """Whether a cast from float64 to it is a deliberate rounding; wide floats were lifted before."""
    return dtype is not None and dtype not in (torch.float64, torch.bool) and not dtype.is_complex


@cache
def _named(func: Any) -> tuple[str, bool]:
    """The operation's name, and whether it writes to its first argument."""
    name = func._schema.name.split("::")[1]
    return name, name.endswith("_") and not name.endswith("__") and _writes_self(func)


def _writes_self(func: Any) -> bool:
    arguments = func._schema.arguments
    return (
        bool(arguments)
        and arguments[0].alias_info is not None
        and (arguments[0].alias_info.is_write)
    )


@contextlib.contextmanager
def lifting(mode: Lifted, *, widening: bool) -> Iterator[None]:
    """Python numbers become float64 constants; attention takes its arithmetic form.

    Args:
        widening: the program may hold float tensors of its own.
    """
    default = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    try:
        with (
            torch.no_grad(),
            torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH),
            Widening() if widening else contextlib.nullcontext(),
            mode,
        ):
            yield
    finally:
        torch.set_default_dtype(default)
