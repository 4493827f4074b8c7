"""Modes that see every operation of torch that a program runs."""

from __future__ import annotations

from torch.utils._python_dispatch import TorchDispatchMode


class Uncompiled(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """A mode under which nothing is compiled; saying so would import torch's compiler: three seconds."""

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False
