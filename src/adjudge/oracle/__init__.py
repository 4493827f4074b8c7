"""The oracle: the right answer in float64, and how far from it an honest kernel may lie."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from adjudge.oracle.judgement import Oracle
    from adjudge.oracle.leaves import Leaf
    from adjudge.oracle.regimes import REGIMES, required_regime

__all__ = ["REGIMES", "Leaf", "Oracle", "required_regime"]

_HOMES = {
    "REGIMES": "regimes",
    "required_regime": "regimes",
    "Leaf": "leaves",
    "Oracle": "judgement",
}


def __getattr__(name: str) -> Any:
    """Loads on first use, so that importing the package does not import torch."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
