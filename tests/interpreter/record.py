"""Records what every operation gives on the GPU of this machine.

PYTHONPATH=src python tests/interpreter/record.py OUT.safetensors
"""

from __future__ import annotations

import sys
import tempfile
import time
from pathlib import Path

import torch
import triton
from operations import kernels, operations, run
from safetensors.torch import save_file


def main() -> None:
    found = list(operations())
    recorded: dict[str, torch.Tensor] = {}
    refused: dict[str, str] = {}
    with tempfile.TemporaryDirectory() as folder:
        compiled = kernels(found, Path(folder))
        for op in found:
            print(op.name, flush=True)
            try:
                recorded[op.name] = run(op, compiled[op.name], "cuda")
            except Exception as error:
                words = str(error).strip().splitlines() or [type(error).__name__]
                refused[op.name] = words[-1][:200]
                print(f"refused {op.name}: {refused[op.name]}", flush=True)
    about = {
        "device": torch.cuda.get_device_name(),
        "date": time.strftime("%Y-%m-%d"),
        "torch": torch.__version__,
        "triton": triton.__version__,
        **{f"refused {name}": words for name, words in refused.items()},
    }
    save_file(recorded, sys.argv[1], metadata=about)
    print(f"{len(recorded)} operations recorded, {len(refused)} refused")


if __name__ == "__main__":
    main()
