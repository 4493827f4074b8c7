"""Train small language models with every member, beside the same runs in float64.

    python benchmarks/training/train.py [--native | --triton] [--steps 300] [--record FILE]
    python benchmarks/training/page.py [FILE ...]

Each member learns each task twice from one seed: with bfloat16 projections and recurrences over
float32 weights, and all in float64 on torch. In the first of the two `--native` makes every fallback
from the native kernels an error, and `--triton` every fallback from the Triton kernels of the portable
path, which then run for members that have native ones too. A loss or gradient that is not finite ends
in an error. `page.py` puts records into docs/training.json and draws them.
"""

from __future__ import annotations

import argparse
import contextlib
import copy
import json
import multiprocessing
import os
import time
from collections.abc import Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any
from unittest import mock

import torch
from model import Model
from tasks import IGNORED, Recall, Task, Text
from torch import Tensor

from gated_recurrence import portable
from gated_recurrence.layers import LAYERS
from gated_recurrence.native import build, dispatch

# The first five are those that the family began with.
MEMBERS = ("linear_attention", "simple_gla", "gla", "gated_delta_rule", "kda")
MEMBERS = (*MEMBERS, *(name for name in LAYERS if name not in MEMBERS))
TASKS = ("recall", "text")
MODES = ("bfloat16", "float64")


@dataclass(frozen=True, slots=True)
class Settings:
    steps: int
    batch: int
    length: int
    pairs: int
    vocabulary: int
    width: int
    heads: int
    head: int
    layers: int
    rate: float
    seed: int
    device: str
    #: "native" or "triton": the kernels that must run; "" for whichever do.
    path: str


def task_of(name: str, settings: Settings) -> Task:
    if name == "recall":
        return Recall(settings.vocabulary, settings.pairs, settings.length)
    return Text(settings.length)


def model_of(member: str, task: Task, settings: Settings) -> Model:
    torch.manual_seed(settings.seed)
    return Model(
        member,
        task.vocabulary,
        width=settings.width,
        heads=settings.heads,
        head=settings.head,
        layers=settings.layers,
    )


def loss_of(model: Model, tokens: Tensor, targets: Tensor, mode: str) -> tuple[Tensor, Tensor]:
    """The mean cross-entropy, and the share of targets that come first."""
    narrow = torch.autocast(tokens.device.type, torch.bfloat16, enabled=mode == "bfloat16")
    with narrow:
        logits = model(tokens)
    logits = logits.to(torch.promote_types(logits.dtype, torch.float32)).flatten(0, 1)
    loss = torch.nn.functional.cross_entropy(logits, targets.flatten(), ignore_index=IGNORED)
    asked = targets.flatten() != IGNORED
    right = (logits.argmax(-1) == targets.flatten())[asked].double().mean()
    return loss, right


class TritonRequired(RuntimeError):
    """A scan would have run on torch while the Triton kernels are required."""


@contextlib.contextmanager
def require_triton() -> Iterator[None]:
    """While this is open nothing runs on native kernels, and a scan that Triton does not take raises."""
    right = portable.applies

    def applies(q: Tensor, rounded: bool) -> bool:
        if not right(q, rounded):
            raise TritonRequired(f"the Triton kernels are required: {q.dtype} on {q.device}")
        return True

    with (
        mock.patch.object(dispatch, "native", return_value=False),
        mock.patch.object(portable, "applies", applies),
        mock.patch.dict(os.environ, {portable.CHOICE: "triton"}),
    ):
        yield


def path_of(mode: str, settings: Settings) -> contextlib.AbstractContextManager[None]:
    if mode == "bfloat16" and settings.path:
        return dispatch.require_native() if settings.path == "native" else require_triton()
    return contextlib.nullcontext()


def gradient_error(model: Model, batch: tuple[Tensor, Tensor], settings: Settings) -> float:
    """RMS of the gradient's difference from the one in float64 at the same weights, over its own."""
    found = {}
    for mode in MODES:
        twin = copy.deepcopy(model).to(torch.float64 if mode == "float64" else torch.float32)
        with path_of(mode, settings):
            loss_of(twin, *batch, mode)[0].backward()
        found[mode] = torch.cat([p.grad.double().flatten() for p in twin.parameters()])
    difference = found["bfloat16"] - found["float64"]
    return float(difference.norm() / found["float64"].norm())


def run(member: str, task_name: str, mode: str, settings: Settings) -> dict[str, Any]:
    """Train once; the losses and shares of right answers of every step.

    Raises:
        ArithmeticError: a loss or a gradient is not finite.
    """
    torch.set_num_threads(1)
    task = task_of(task_name, settings)
    device = torch.device(settings.device)
    dtype = torch.float64 if mode == "float64" else torch.float32
    model = model_of(member, task, settings).to(device, dtype)
    optimiser = torch.optim.AdamW(model.parameters(), lr=settings.rate, weight_decay=0.01)
    warm = max(1, settings.steps // 10)
    schedule = torch.optim.lr_scheduler.LambdaLR(
        optimiser,
        lambda step: min((step + 1) / warm, 1.0) * (1 - 0.9 * step / settings.steps),
    )
    source = torch.Generator().manual_seed(settings.seed + 1)
    losses, rights, norms = [], [], []
    began = time.perf_counter()
    with path_of(mode, settings):
        for _ in range(settings.steps):
            tokens, targets = (x.to(device) for x in task.batch(settings.batch, source))
            loss, right = loss_of(model, tokens, targets, mode)
            optimiser.zero_grad()
            loss.backward()
            norms.append(torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0).detach())
            optimiser.step()
            schedule.step()
            losses.append(loss.detach())
            rights.append(right)
    found = {
        name: torch.stack(x).double().cpu() for name, x in (("loss", losses), ("right", rights))
    }
    finite = torch.stack(norms).isfinite().cpu() & found["loss"].isfinite()
    if not bool(finite.all()):
        step = int((~finite).nonzero()[0])
        raise ArithmeticError(f"{member}, {task_name}, {mode}: not finite at step {step}")
    seconds = time.perf_counter() - began
    out: dict[str, Any] = {"member": member, "task": task_name, "mode": mode}
    out |= {name: [round(float(x), 4) for x in values] for name, values in found.items()}
    out["seconds"] = round(seconds, 2)
    if mode == "bfloat16":
        batch = tuple(x.to(device) for x in task.batch(settings.batch, source))
        out["gradient_error"] = gradient_error(model, batch, settings)
    return out


def run_all(
    members: Iterable[str], tasks: Iterable[str], settings: Settings, jobs: int
) -> list[dict[str, Any]]:
    wanted = [(m, t, mode, settings) for m in members for t in tasks for mode in MODES]
    if jobs == 1:
        return [_reported(*one) for one in wanted]
    # The float64 runs take longest and go first.
    wanted.sort(key=lambda one: one[2] != "float64")
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(jobs, context) as pool:
        return list(pool.map(_reported, *zip(*wanted, strict=True)))


def _reported(member: str, task: str, mode: str, settings: Settings) -> dict[str, Any]:
    try:
        found = run(member, task, mode, settings)
    except (dispatch.NativeRequired, TritonRequired, ArithmeticError, ValueError) as error:
        found = {"member": member, "task": task, "mode": mode, "error": str(error)}
    said = found.get("error") or f"{found['loss'][-1]:.3f} after {found['seconds']:.0f} s"
    print(f"{member:20} {task:7} {mode:9} {said}", flush=True)
    return found


def arguments(given: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--members", nargs="+", default=list(MEMBERS), choices=MEMBERS)
    parser.add_argument("--tasks", nargs="+", default=list(TASKS), choices=TASKS)
    paths = parser.add_mutually_exclusive_group()
    for name in ("native", "triton"):
        paths.add_argument(
            f"--{name}",
            dest="path",
            action="store_const",
            const=name,
            default="",
            help=f"what does not run on the {name} kernels is an error",
        )
    parser.add_argument("--jobs", type=int, default=1, help="runs at a time")
    parser.add_argument("--record", type=Path, help="where the numbers go, JSON")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    sizes = {"steps": 300, "batch": 32, "length": 256, "pairs": 32, "vocabulary": 256}
    sizes |= {"width": 256, "heads": 2, "head": 128, "layers": 2, "seed": 1}
    for name, size in sizes.items():
        parser.add_argument(f"--{name}", type=int, default=size)
    parser.add_argument("--rate", type=float, default=3e-3)
    return parser.parse_args(given)


def main(given: list[str] | None = None) -> int:
    asked = arguments(given)
    names = Settings.__dataclass_fields__
    settings = Settings(**{name: getattr(asked, name) for name in names})
    if settings.path == "native":
        build.cubins()  # once, before the runs ask for it side by side
    runs = run_all(asked.members, asked.tasks, settings, asked.jobs)
    device = "cpu"
    if settings.device.startswith("cuda"):
        device = torch.cuda.get_device_name(settings.device)
    record = {
        "date": time.strftime("%Y-%m-%d"),
        "device": device,
        "torch": torch.__version__,
        "settings": asdict(settings),
        "runs": runs,
    }
    if asked.record:
        asked.record.write_text(json.dumps(record, indent=None, separators=(",", ":")) + "\n")
    return int(any("error" in one for one in runs))


if __name__ == "__main__":
    raise SystemExit(main())
