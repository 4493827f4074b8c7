"""Train small language models with every member, beside the same runs in float64.

    python benchmarks/training/train.py [--native | --triton] [--steps 300] [--record FILE [--resume]]
    python benchmarks/training/page.py [FILE ...]

Each member learns each task twice from one seed: with bfloat16 projections and recurrences over
float32 weights, and all in float64 on torch. In the first of the two `--native` makes every fallback
from the native kernels an error, and `--triton` every fallback from the Triton kernels of the portable
path, which then run for members that have native ones too. A loss or gradient that is not finite ends
in an error. On a GPU a CUDA graph holds the step, unless `--eager`. The record is written after every
run; with `--resume` the runs that it holds of the same settings are not made again. `page.py` puts
records into docs/training.json and draws them.
"""

from __future__ import annotations

import argparse
import contextlib
import copy
import json
import multiprocessing
import os
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
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
#: Steps before one is captured: what they compile, load and allocate once is no part of a graph.
WARM = 3

Run = dict[str, Any]


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
    right = (logits.argmax(-1) == targets.flatten()) & asked
    return loss, right.sum().double() / asked.sum()


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


class Trainee:
    """A model and its optimiser, with inputs of one place, so that a CUDA graph can hold a step."""

    def __init__(self, model: Model, batch: tuple[Tensor, Tensor], mode: str) -> None:
        self.model, self.mode = model, mode
        self.batch = tuple(torch.empty_like(x) for x in batch)
        like = next(model.parameters())
        self.rate = like.new_zeros(())
        self.optimiser = torch.optim.AdamW(
            model.parameters(),
            lr=self.rate,
            weight_decay=0.01,
            capturable=like.is_cuda,
            foreach=like.is_cuda,
        )
        self.graph: torch.cuda.CUDAGraph | None = None
        self.found = like.new_zeros(3, dtype=torch.float64)

    def step(self) -> Tensor:
        """Learn from `batch` at `rate`: the loss, the share of right answers, the gradient's norm."""
        self.optimiser.zero_grad()
        loss, right = loss_of(self.model, *self.batch, self.mode)
        loss.backward()
        norm = torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.optimiser.step()
        return torch.stack([x.detach().double() for x in (loss, right, norm)])

    def replay(self) -> Tensor:
        """`step` out of a graph, which the first call captures."""
        if self.graph is None:
            self.graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(self.graph, stream=torch.cuda.current_stream()):
                self.found = self.step()
        self.graph.replay()
        return self.found


def rates(settings: Settings) -> Tensor:
    """The learning rate of every step: a tenth of them to rise, then down to a tenth of it."""
    warm = max(1, settings.steps // 10)
    step = torch.arange(settings.steps, dtype=torch.float64)
    return settings.rate * ((step + 1) / warm).clamp(max=1) * (1 - 0.9 * step / settings.steps)


def run(member: str, task_name: str, mode: str, settings: Settings, eager: bool = False) -> Run:
    """Train once; the losses and shares of right answers of every step.

    Raises:
        ArithmeticError: a loss or a gradient is not finite.
    """
    torch.set_num_threads(1)
    task = task_of(task_name, settings)
    device = torch.device(settings.device)
    dtype = torch.float64 if mode == "float64" else torch.float32
    model = model_of(member, task, settings).to(device, dtype)
    source = torch.Generator().manual_seed(settings.seed + 1)
    drawn = [task.batch(settings.batch, source) for _ in range(settings.steps + 1)]
    tokens, targets = (torch.stack(x).to(device) for x in zip(*drawn, strict=True))
    trainee = Trainee(model, (tokens[0], targets[0]), mode)
    pace = rates(settings).to(device, dtype)
    found = torch.zeros(settings.steps, 3, dtype=torch.float64, device=device)
    began = time.perf_counter()
    graph = device.type == "cuda" and not eager
    # A graph is not captured on the stream that all else waits for.
    aside = torch.cuda.stream(torch.cuda.Stream(device)) if graph else contextlib.nullcontext()
    if graph:
        torch.cuda.synchronize(device)
    with path_of(mode, settings), aside:
        for step in range(settings.steps):
            for place, given in zip(trainee.batch, (tokens, targets), strict=True):
                place.copy_(given[step])
            trainee.rate.copy_(pace[step])
            found[step] = trainee.replay() if graph and step >= WARM else trainee.step()
        found = found.cpu()
    finite = found.isfinite().all(1)
    if not bool(finite.all()):
        step = int((~finite).nonzero()[0])
        raise ArithmeticError(f"{member}, {task_name}, {mode}: not finite at step {step}")
    out: Run = {"member": member, "task": task_name, "mode": mode}
    for column, name in enumerate(("loss", "right")):
        out[name] = [round(x, 4) for x in found[:, column].tolist()]
    out["seconds"] = round(time.perf_counter() - began, 2)
    if mode == "bfloat16":
        out["gradient_error"] = gradient_error(model, (tokens[-1], targets[-1]), settings)
    return out


def run_all(wanted: list[tuple[str, ...]], settings: Settings, asked: Any) -> Iterator[Run]:
    """The runs of members, tasks and modes, each as soon as it is done."""
    given = [(*one, settings, asked.eager) for one in wanted]
    if asked.jobs == 1:
        yield from (_reported(*one) for one in given)
        return
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(asked.jobs, context) as pool:
        for done in as_completed([pool.submit(_reported, *one) for one in given]):
            yield done.result()


def _reported(member: str, task: str, mode: str, settings: Settings, eager: bool) -> Run:
    try:
        found = run(member, task, mode, settings, eager)
    except (dispatch.NativeRequired, TritonRequired, ArithmeticError, ValueError) as error:
        found = {"member": member, "task": task, "mode": mode, "error": str(error)}
    said = found.get("error") or f"{found['loss'][-1]:.3f} after {found['seconds']:.0f} s"
    print(f"{member:20} {task:7} {mode:9} {said}", flush=True)
    return found


def identity(run: Run) -> tuple[str, ...]:
    return run["member"], run["task"], run["mode"]


def held(file: Path, facts: dict[str, Any]) -> list[Run]:
    """The finished runs of a record of the same machine and settings."""
    if not file.exists():
        return []
    record = json.loads(file.read_text(encoding="utf-8"))
    if any(record[name] != facts[name] for name in ("device", "torch", "settings")):
        return []
    return [run for run in record["runs"] if "error" not in run]


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
    parser.add_argument("--resume", action="store_true", help="not what the record holds")
    parser.add_argument("--eager", action="store_true", help="no CUDA graph")
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
    device = "cpu"
    if settings.device.startswith("cuda"):
        device = torch.cuda.get_device_name(settings.device)
    facts = {
        "date": time.strftime("%Y-%m-%d"),
        "device": device,
        "torch": torch.__version__,
        "settings": asdict(settings),
    }
    wanted = [(m, t, mode) for m in asked.members for t in asked.tasks for mode in MODES]
    runs = held(asked.record, facts) if asked.record and asked.resume else []
    done = {identity(run) for run in runs}
    order = {one: place for place, one in enumerate(dict.fromkeys([*map(identity, runs), *wanted]))}
    for one in run_all([one for one in wanted if one not in done], settings, asked):
        runs = sorted([*runs, one], key=lambda run: order[identity(run)])
        if asked.record:
            text = json.dumps(facts | {"runs": runs}, separators=(",", ":"))
            asked.record.write_text(text + "\n", encoding="utf-8")
    return int(any("error" in one for one in runs))


if __name__ == "__main__":
    raise SystemExit(main())
