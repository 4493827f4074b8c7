"""Records what every operation gives on the GPU of this machine.

PYTHONPATH=src python tests/interpreter/record.py OUT.safetensors

With TRITON_INTERPRET=1 it records what the corrected interpreter gives: a rehearsal, for another file.
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from contextlib import nullcontext
from pathlib import Path

import torch
import triton
from operations import kernels, operations, run
from safetensors.torch import save_file


def main() -> None:
    found = list(operations())
    device, session = "cuda", nullcontext
    if os.environ.get("TRITON_INTERPRET") == "1":
        from adjudge.worker import interpreter

        interpreter.install()
        device, session = "cpu", lambda: interpreter.session(interpreter.Options())
    recorded: dict[str, torch.Tensor] = {}
    refused: dict[str, str] = {}
    with tempfile.TemporaryDirectory() as folder:
        compiled = kernels(found, Path(folder))
        for op in found:
            print(op.name, flush=True)
            try:
                with session():
                    recorded[op.name] = run(op, compiled[op.name], device)
            except Exception as error:
                words = str(error).strip().splitlines() or [type(error).__name__]
                refused[op.name] = words[-1][:200]
                print(f"refused {op.name}: {refused[op.name]}", flush=True)
    about = {
        "device": torch.cuda.get_device_name() if device == "cuda" else "the interpreter",
        "date": time.strftime("%Y-%m-%d"),
        "torch": torch.__version__,
        "triton": triton.__version__,
        **{f"refused {name}": words for name, words in refused.items()},
    }
    save_file(recorded, sys.argv[1], metadata=about)
    print(f"{len(recorded)} operations recorded, {len(refused)} refused")


if __name__ == "__main__":
    main()
