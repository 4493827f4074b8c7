"""Triton's CPU interpreter made faithful to a GPU, and made to tell what it saw.

`install` once in a process with TRITON_INTERPRET=1; then kernels launched inside a `session` run
under its options.
"""

from __future__ import annotations

from adjudge.worker.interpreter.session import Log, Options, Unsupported, session

__all__ = ["Log", "Options", "Unsupported", "install", "session"]


def install() -> None:
    """Makes Triton's interpreter faithful, for the whole process.

    Raises:
        ImportError: triton is not installed.
    """
    from adjudge.worker.interpreter import blocks, builder, launching, reductions, words

    blocks.install()
    builder.install()
    reductions.install()
    words.install()
    launching.install()
