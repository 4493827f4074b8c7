"""Whether a call runs on the native kernels; every decision is logged, once a reason.

Under `require_native`, or with `GATED_RECURRENCE_REQUIRE_NATIVE=1`, whatever would take the portable
path raises instead, forward or backward.
"""

from __future__ import annotations

import contextlib
import functools
import logging
import os
from collections.abc import Iterator

import torch
from torch import Tensor

from gated_recurrence.native import build

log = logging.getLogger("gated_recurrence")

CAPABILITY = (9, 0)
HEAD = 128
# Whether the members with a gate a channel are sent to the kernels that are written for them.
GATES_A_CHANNEL = False

# Of the process, not of a thread or context: autograd runs backward in threads of its own.
_requirements = 0


class NativeRequired(RuntimeError):
    """The portable path would have been taken while the native kernels are required."""


@contextlib.contextmanager
def require_native() -> Iterator[None]:
    """While this is open, in any thread, a portable forward or backward raises `NativeRequired`."""
    global _requirements
    _requirements += 1
    try:
        yield
    finally:
        _requirements -= 1


def native_required() -> bool:
    return _requirements > 0 or os.environ.get("GATED_RECURRENCE_REQUIRE_NATIVE") == "1"


def allow_portable(what: str, reason: str = "it has no native kernels for this call") -> None:
    """Called where the portable path begins.

    Raises:
        NativeRequired: naming `what`, where the native kernels are required.
    """
    if native_required():
        raise NativeRequired(f"{what}: the native kernels are required, but {reason}")


def refusal(
    device: str,
    capability: tuple[int, int] | None,
    dtype: torch.dtype,
    key: int,
    value: int,
    tokens: int,
    padded: bool = False,
) -> str | None:
    """Why these facts of a call keep it from the native kernels; None where nothing does.

    `padded`: the member takes other widths too, see `widths.py`.
    """
    if device != "cuda":
        return f"the tensors are on {device}"
    if capability != CAPABILITY:
        return f"the device has compute capability {capability}, not {CAPABILITY}"
    if dtype != torch.bfloat16:
        return f"the tensors are {dtype}, not torch.bfloat16"
    if padded and key > HEAD:
        return f"K = {key}; the kernels are for {HEAD} and less"
    if not padded and (key, value) != (HEAD, HEAD):
        return f"K = {key}, V = {value}; the kernels are for {HEAD}"
    if tokens == 0:
        return "there are no tokens"
    return None


@functools.cache
def _unbuildable() -> str | None:
    try:
        build.cubins()
    # Neither a compiler that may not be started nor a cache that may not be read or written is the
    # caller's mistake: sandboxes and read-only homes have them.
    except (build.NoCompiler, OSError) as reason:
        return str(reason)
    return None


@functools.cache
def _say(member: str, reason: str | None) -> None:
    if reason is None:
        log.info("%s: native sm_90a kernels", member)
    else:
        log.warning("%s: portable path, since %s", member, reason)


def native(member: str, q: Tensor, v: Tensor, *, padded: bool = False) -> bool:
    """Whether `member` runs on the native kernels with these (checked) tensors."""
    kind = q.device.type
    capability = torch.cuda.get_device_capability(q.device) if kind == "cuda" else None
    tokens = q.shape[0] * q.shape[1]
    reason = refusal(kind, capability, q.dtype, q.shape[-1], v.shape[-1], tokens, padded)
    if reason is None:
        reason = _unbuildable()
    if reason is not None:
        allow_portable(member, reason)
    if kind != "cuda":  # the only path there, so nothing to report
        return False
    _say(member, reason)
    return reason is None
