"""Records what nvcc makes of own.cu, and what its tools print of that.

PYTHONPATH=src python tests/static/record_sass.py

Needed again only if the kernels change: the reading is tested on the record where there is no compiler.
"""

from __future__ import annotations

import json
import tempfile
from pathlib import Path

from adjudge.static import nvcc
from adjudge.static.device_code import device_code

HERE = Path(__file__).parent
FLAGS: tuple[str, ...] = ("--use_fast_math",)


def main() -> None:
    compiler = nvcc.find()
    assert compiler is not None, "no nvcc"
    text = device_code((HERE / "own.cu").read_text()).text
    for capability in nvcc.ARCHITECTURES:
        job = {"nvcc": str(compiler), "text": text, "flags": FLAGS, "capability": capability}
        with tempfile.TemporaryDirectory() as folder:
            made = nvcc.compiled(job, Path(folder), 0)
        # The instruction's bits and the dressing between functions say nothing that is read.
        for kernel in made["kernels"]:
            lines = kernel["sass"].splitlines()
            kernel["sass"] = "\n".join(line.strip() for line in lines if ";" in line)
        path = HERE / "recorded" / f"sm_{capability}.json"
        path.write_text(json.dumps(made, indent=1) + "\n")


if __name__ == "__main__":
    main()
