"""What a reference returns, as a flat list of arrays."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from adjudge import arrays


@dataclass(frozen=True, slots=True)
class Leaf:
    """One tensor (or number) of the returned structure."""

    #: Path in the structure: "" for a bare tensor, "[0]", "['loss']", ...
    path: str
    #: C-contiguous values. bfloat16 and float8 are ml_dtypes arrays.
    data: npt.NDArray[Any]
    #: torch's name of the dtype, without the prefix.
    dtype: str
    #: True for a Python number.
    scalar: bool = False

    @property
    def is_float(self) -> bool:
        return self.dtype.startswith(("float", "bfloat", "complex"))


def flatten(result: Any) -> list[tuple[str, torch.Tensor, bool]]:
    """(path, tensor, whether it was a Python number) of every leaf that holds numbers."""
    found: list[tuple[str, torch.Tensor, bool]] = []

    def keep(path: str, value: Any) -> Any:
        if isinstance(value, torch.Tensor):
            found.append((path, value.detach(), False))
        elif isinstance(value, (bool, int, float, complex)):
            dtype = torch.float64 if isinstance(value, float) else None
            found.append((path, torch.tensor(value, dtype=dtype), True))
        return value

    arrays.map_leaves(result, keep)
    return found


def structure_of(result: Any) -> str:
    """The structure without its leaves: "tensor", "(tensor, tensor)", "{'a': tensor}"."""
    if isinstance(result, torch.Tensor):
        return "tensor"
    if isinstance(result, (tuple, list)):
        inner = ", ".join(structure_of(v) for v in result)
        if isinstance(result, list):
            return f"[{inner}]"
        return f"({inner},)" if len(result) == 1 else f"({inner})"
    if isinstance(result, dict):
        return "{" + ", ".join(f"{k!r}: {structure_of(v)}" for k, v in result.items()) + "}"
    return type(result).__name__


def leaves_of(result: Any) -> list[Leaf]:
    """Copies, so that later in-place work on the tensors does not reach them."""
    leaves = []
    for path, tensor, scalar in flatten(result):
        data = np.array(arrays.to_numpy(tensor), order="C", copy=True)
        leaves.append(Leaf(path, data, arrays.dtype_name(tensor.dtype), scalar))
    return leaves
