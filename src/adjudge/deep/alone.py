"""What compute-sanitizer runs: the candidate called once for each case, with nothing of ours around it.

    python -m adjudge.deep.alone FOLDER

No guard zones, no poison and no cache of memory, so that every tensor is an allocation of its own.
"""

from __future__ import annotations

import importlib.util
import sys
from typing import Any

import torch

from adjudge import arrays
from adjudge.judge.cases import WEIGHT_SEED
from adjudge.weights import construct


def main(folder: str) -> None:
    given = torch.load(f"{folder}/given.pt", weights_only=True)
    spec = importlib.util.spec_from_file_location("candidate", f"{folder}/candidate.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["candidate"] = module
    spec.loader.exec_module(module)
    target: Any = module
    for part in given["entry"].split("."):
        target = getattr(target, part)
    for case in given["cases"]:
        _call(target, given["kind"], case)


def _call(target: Any, kind: str, case: dict[str, Any]) -> None:
    built = target
    if kind != "function":
        built = construct(
            target, case["init_args"], case["init_kwargs"], seed=WEIGHT_SEED, redrawn=False
        )
    if isinstance(built, torch.nn.Module):
        if case["weights"] is not None:
            built.load_state_dict(case["weights"], strict=False)
        built = built.cuda()

    def there(path: str, leaf: Any) -> Any:
        return leaf.cuda() if isinstance(leaf, torch.Tensor) else leaf

    args = arrays.map_leaves(case["args"], there)
    kwargs = arrays.map_leaves(case["kwargs"], there)
    with torch.no_grad():
        built(*args, **kwargs)
    torch.cuda.synchronize()


if __name__ == "__main__":
    main(sys.argv[1])
