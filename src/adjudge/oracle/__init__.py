"""The truth about a probe: a float64 answer, and the error that an honest kernel may make."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from adjudge.oracle.regimes import REGIMES

if TYPE_CHECKING:
    from adjudge.oracle.evaluate import Oracle, required_regime

__all__ = ["REGIMES", "Oracle", "required_regime"]


def __getattr__(name: str) -> Any:
    # Evaluating needs torch; naming a regime does not.
    if name in ("Oracle", "required_regime"):
        from adjudge.oracle import evaluate

        return getattr(evaluate, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
