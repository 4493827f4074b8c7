"""The portable path on Triton, for GPUs that the native kernels are not written for.

The same chunk algebra as `core.chunk`, with the same rounding points, in five kernels a direction.
Nothing is tuned at run time.
"""

from __future__ import annotations

import functools
import importlib.util
import logging
import os

import torch
from torch import Tensor

log = logging.getLogger("gated_recurrence")

#: "triton" or "torch" takes that portable path wherever it can run; unset leaves the choice here.
CHOICE = "GATED_RECURRENCE_PORTABLE"
#: The state of a scan is held whole over K.
WIDEST_KEY = 256


def refusal(device: str, dtype: torch.dtype, key: int, count: int, rounded: bool) -> str | None:
    """Why these facts of a call keep it from Triton; None where nothing does.

    count: tokens times sequences times heads.
    """
    choice = os.environ.get(CHOICE, "")
    if choice == "torch":
        return f"{CHOICE}=torch"
    interpreted = os.environ.get("TRITON_INTERPRET") == "1"
    if device != "cuda" and not (choice == "triton" and interpreted):
        return f"the tensors are on {device}"
    if dtype != torch.float32:
        return f"the work is done in {dtype}"
    if not rounded and choice != "triton":
        # Without matrix units a product in float32 is faster in cuBLAS than in these tiles.
        return "the tensors are float32"
    if key > WIDEST_KEY:
        return f"K = {key}, above {WIDEST_KEY}"
    if not count:
        return "there are no tokens"
    if importlib.util.find_spec("triton") is None:
        return "triton is not installed"
    return None


@functools.cache
def _say(reason: str | None) -> None:
    if reason is None:
        log.info("portable path: Triton kernels")
    else:
        log.info("portable path: torch, since %s", reason)


def applies(q: Tensor, rounded: bool) -> bool:
    """Whether a scan of `q` `[B, HV, T, K]`, in the working dtype, runs on the Triton kernels."""
    count = q.shape[0] * q.shape[1] * q.shape[2]
    reason = refusal(q.device.type, q.dtype, q.shape[-1], count, rounded)
    _say(reason)
    return reason is None
