"""Backward passes of flash-linear-attention on one GPU, beside this repository's own of those members.

    python benchmarks/fla_backward.py [--member NAME] [--budget SECONDS] [--record FILE.json]

Two are known to be compiled wrongly by Triton from 3.4.0 to before 3.7.1 on Hopper: DeltaNet's (issue
984 there; up to fla-core 0.5.0 the autotuner may choose the configurations concerned) and Gated
DeltaNet's (issue 640; it refuses to run, and the refusal is switched off here). Each is judged by
`adjudge verify --runner cuda` against the recurrence in plain PyTorch, in processes of its own. Needs
fla-core, Triton, nvcc and a Hopper GPU. Ends with 1 unless DeltaNet's is convicted of wrong gradients,
and none of ours of anything.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import json
import os
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from gated_recurrence.native import build

HERE = Path(__file__).resolve().parent
MEMBERS = ("delta_rule", "gated_delta_rule")
THEIRS, OURS = "flash_linear_attention", "native"
#: Gates that are to convict a candidate; where none are named, the verdict is news.
EXPECTED = {
    f"delta_rule/{THEIRS}": {"wrong-gradient"},
    **{f"{member}/{OURS}": set() for member in MEMBERS},
}
GATES = "wrong-value,wrong-gradient"
#: What kernels with bfloat16 operands and float32 sums can keep.
REQUIRED = "bf16xfp32"
#: Seconds for one verdict, its processes' start and all compilation included.
PATIENCE = 150.0


def verdict(name: str, cubins: str, budget: float) -> dict[str, Any]:
    """The record that the command writes of a candidate, named as in EXPECTED.

    Args:
        budget: seconds for its probes.
        cubins: folder of compiled native kernels: candidates cannot write outside their own.
    """
    readable = os.pathsep.join(filter(None, [os.environ.get("PYTHONPATH"), cubins]))
    environment = {**os.environ, "PYTHONPATH": readable, "GATED_RECURRENCE_CACHE": cubins}
    with tempfile.TemporaryDirectory() as folder:
        record = Path(folder) / "verdict.json"
        command = [
            *(sys.executable, "-m", "adjudge", "verify", str(HERE / f"{name}.py")),
            *("--reference", str(HERE / name.partition("/")[0] / "reference.py")),
            *("--runner", "cuda"),
            *("--gates", GATES, "--required", REQUIRED, "--json", str(record)),
            *("--budget", f"{budget:g}"),
        ]
        done = subprocess.run(
            command, env=environment, capture_output=True, text=True, timeout=PATIENCE, check=False
        )
        if not record.exists():
            raise RuntimeError(f"{name}: exit code {done.returncode}\n{done.stdout}{done.stderr}")
        found: dict[str, Any] = json.loads(record.read_text())
    return found | {"exit": done.returncode}


def kept(found: dict[str, Any]) -> dict[str, Any]:
    """What the record here keeps of a verdict."""
    return {
        "standing": found["standing"],
        "exit": found["exit"],
        "grade": found["grade"],
        "required": found["required"],
        "probes": found["probes"],
        "seconds": round(found["seconds"], 1),
        "refusals": found["refusals"],
        "findings": [
            {name: f[name] for name in ("gate", "outcome", "scope", "reason", "notes", "violation")}
            for f in found["findings"]
        ],
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--member", action="append", choices=MEMBERS)
    parser.add_argument("--record", type=Path)
    parser.add_argument("--budget", type=float, default=60.0)
    options = parser.parse_args()
    cubins = os.environ.setdefault("GATED_RECURRENCE_CACHE", tempfile.mkdtemp())
    build.cubins()
    names = [f"{member}/{one}" for member in options.member or MEMBERS for one in (THEIRS, OURS)]
    with ThreadPoolExecutor(len(names)) as all_at_once:
        judged = all_at_once.map(lambda name: verdict(name, cubins, options.budget), names)
        found = dict(zip(names, judged, strict=True))
    provenance = next(iter(found.values()))["provenance"]
    record = {
        "date": time.strftime("%Y-%m-%d"),
        "device": provenance["device"],
        "versions": [
            *provenance["versions"],
            ["fla-core", importlib.metadata.version("fla-core")],
        ],
        "adjudge": provenance["adjudge"],
        "gates": provenance["gates"],
        "budget": options.budget,
        "verdicts": {name: kept(one) for name, one in found.items()},
    }
    text = json.dumps(record, indent=1, ensure_ascii=False) + "\n"
    if options.record is not None:
        options.record.write_text(text, encoding="utf-8")
    fine = True
    for name, one in found.items():
        convicted = {f["gate"] for f in one["findings"] if f["violation"] is not None}
        words = ", ".join(sorted(convicted)) or "nothing"
        print(f"{name:40s} {one['standing']}, {one['seconds']:.1f} s, convicted of {words}")
        fine &= convicted == EXPECTED.get(name, convicted)
    return 0 if fine else 1


if __name__ == "__main__":
    sys.exit(main())
