"""The truth about a probe: a float64 answer, and the error that an honest kernel may make."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from adjudge.oracle.regimes import NARROW_FACTORS, NARROW_SUMS, REGIMES

if TYPE_CHECKING:
    from adjudge.oracle.evaluate import Oracle

__all__ = ["NARROW_FACTORS", "NARROW_SUMS", "REGIMES", "Oracle"]


def __getattr__(name: str) -> Any:
    # Evaluating needs torch; naming a regime does not.
    if name == "Oracle":
        from adjudge.oracle.evaluate import Oracle

        return Oracle
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
