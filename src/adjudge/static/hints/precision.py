"""Sums and products in fewer bits than the operands have."""

from __future__ import annotations

import ast

from adjudge.static.hints.common import Found
from adjudge.static.source import Source


def less_precise(source: Source) -> Found:
    """Sums and products kept in fewer bits than the operands' own kind."""
    for kernel in source.kernels.values():
        for node in ast.walk(kernel):
            if not isinstance(node, ast.Call):
                continue
            called = source.names.paths(node.func)
            given = {keyword.arg: keyword.value for keyword in node.keywords}
            if "triton.language.zeros" in called or "triton.language.full" in called:
                kinds = [*node.args[1:], *([given["dtype"]] if "dtype" in given else [])]
                if any(source.names.paths(kind) & _NARROW for kind in kinds):
                    yield node, "accumulates in 16 bits"
            elif "triton.language.dot" in called:
                if source.names.paths(given.get("out_dtype", node)) & _NARROW:
                    yield node, "a matrix product summed in 16 bits"
                precision = source.names.text(given.get("input_precision", node))
                allowed = given.get("allow_tf32")
                if (precision or "").startswith("tf32") or (
                    isinstance(allowed, ast.Constant) and allowed.value is True
                ):
                    yield node, "a matrix product whose operands may be cut to 10 bits (tf32)"


_NARROW = frozenset({"triton.language.float16", "triton.language.bfloat16"})
