"""The field's usual test of one kernel, in this process: KernelBench's acceptance rule.

    python benchmarks/usual_test.py < ROW.json

Reads a row of a corpus and prints whether the candidate is accepted: the reference's own inputs from
five seeds, shapes equal and `allclose` at 1e-2 relative and absolute, on the GPU. Both sides run here,
as they do there: this measures what that test costs, and trusts the candidate as it does.
"""

from __future__ import annotations

import json
import linecache
import sys
import tempfile
from pathlib import Path
from typing import Any

import torch

SEEDS, TOLERANCE, WEIGHT_SEED = 5, 1e-2, 42


def namespace(text: str, folder: str, name: str) -> dict[str, Any]:
    # Triton reads a kernel's source back from its file.
    path = Path(folder) / f"{name}.py"
    path.write_text(text)
    linecache.checkcache(str(path))
    found: dict[str, Any] = {"__name__": name}
    exec(compile(text, str(path), "exec"), found)
    return found


def on_device(values: Any) -> list[Any]:
    return [v.cuda() if isinstance(v, torch.Tensor) else v for v in values]


def accepted(row: dict[str, Any], folder: str) -> bool:
    reference = namespace(row["reference"], folder, "reference")
    candidate = namespace(row["candidate"], folder, "candidate")
    torch.manual_seed(WEIGHT_SEED)
    arguments = on_device(reference["get_init_inputs"]())
    torch.manual_seed(WEIGHT_SEED)
    expecting = reference["Model"](*arguments).cuda()
    torch.manual_seed(WEIGHT_SEED)
    judged = candidate["ModelNew"](*arguments).cuda()
    with torch.no_grad():
        for seed in range(SEEDS):
            torch.manual_seed(seed)
            inputs = on_device(reference["get_inputs"]())
            wanted, got = expecting(*inputs), judged(*inputs)
            torch.cuda.synchronize()
            if wanted.shape != got.shape:
                return False
            if not torch.allclose(wanted, got, atol=TOLERANCE, rtol=TOLERANCE):
                return False
    return True


def main() -> None:
    row = json.load(sys.stdin)
    with tempfile.TemporaryDirectory() as folder:
        print("accepted" if accepted(row, folder) else "rejected")


if __name__ == "__main__":
    main()
