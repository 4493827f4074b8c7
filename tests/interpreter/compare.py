"""What the interpreter gives, against what a GPU gave.

TRITON_INTERPRET=1 python tests/interpreter/compare.py > tests/interpreter/differences.json
"""

from __future__ import annotations

import json
import tempfile
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from operations import Operation, kernels, operations, run
from safetensors import safe_open

from adjudge.oracle.compare import classes

RECORD = Path(__file__).with_name("h200.safetensors")

Differences = dict[str, dict[str, int]]


def differences() -> Differences:
    """Operation -> elements of another class (NaN, either infinity, zero by sign; for integers any
    other value) and the largest distance of finite ones in units of the last place; of matrix products
    in those of the largest element, since a sum that cancels hangs on the order of its terms, which is
    the processor's."""
    from adjudge.worker import interpreter
    from adjudge.worker.interpreter import Options, Unsupported, session

    interpreter.install()
    warnings.simplefilter("ignore")
    found = list(operations())
    out: Differences = {}
    with tempfile.TemporaryDirectory() as folder, safe_open(RECORD, "pt") as record:
        compiled = kernels(found, Path(folder))
        for op in found:
            with session(Options()):
                try:
                    ours = run(op, compiled[op.name], "cpu")
                except Unsupported:
                    out[op.name] = {"unsupported": 1}
                    continue
            differs = _compared(op, ours, record.get_tensor(op.name))
            if differs:
                out[op.name] = differs
    return out


def _compared(op: Operation, ours: torch.Tensor, theirs: torch.Tensor) -> dict[str, int]:
    dtype = getattr(torch, op.output)
    a, b = ours.view(dtype), theirs.view(dtype)
    if not dtype.is_floating_point:
        wrong = int((a != b).sum())
        return {"classes": wrong} if wrong else {}
    one, other = _classes(a), _classes(b)
    wrong = int((one != other).sum())
    finite = (one == 0) & (other == 0)
    if op.name.startswith("dot"):
        gap = np.where(finite, (a.double() - b.double()).numpy(), 0.0)
        largest = np.abs(np.where(finite, b.double().numpy(), 0.0)).max()
        ulps = int(np.ceil(np.abs(gap).max() / (largest * torch.finfo(dtype).eps)))
    else:
        bits = {2: torch.int16, 4: torch.int32}[dtype.itemsize]
        steps = (a.view(bits).long() - b.view(bits).long()).abs().numpy()
        ulps = int(np.where(finite, steps, 0).max())
    found = {"classes": wrong, "ulps": ulps}
    return {name: count for name, count in found.items() if count}


def _classes(values: torch.Tensor) -> npt.NDArray[Any]:
    wide = values.double().numpy()
    kinds = classes(wide)
    kinds[wide == 0] = 4
    return np.where((wide == 0) & np.signbit(wide), -kinds, kinds)


if __name__ == "__main__":
    print(json.dumps(differences(), indent=1))
