"""Adjudge decides whether a GPU kernel keeps its contract.

Importing this package does not import torch: everything heavy is loaded where it is used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

__all__ = ["__version__", "verify"]

if TYPE_CHECKING:
    from adjudge.frontends.callable import verify


def __getattr__(name: str) -> Any:
    # PEP 562: `adjudge.verify` needs torch, `import adjudge` must not.
    if name == "verify":
        from adjudge.frontends.callable import verify

        return verify
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
