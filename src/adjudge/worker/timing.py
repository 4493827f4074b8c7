"""Inside the worker: the candidate called over and over, while the judge keeps the time.

The judge asks for each part of a span by itself, under its own clock: *place* makes the inputs of all
its calls out of a pad that was not known before, *call* makes the calls and waits for the device, *seal*
sums the bits of every answer. What follows (*show*: one answer in full) must fit the seal. A candidate
may patch all of this; the judge compares what each part takes with what it takes of the reference.
"""

from __future__ import annotations

import gc
import mmap
from collections.abc import Callable
from time import perf_counter
from typing import Any, Protocol

import torch

from adjudge import arrays
from adjudge.bench.ring import MASKS, WIDTH
from adjudge.worker.runners import Runner

#: Requests that are answered here.
PARTS = frozenset({"prepare", "place", "call", "seal", "show"})

#: Bytes of answers that are summed by one operation. On a GPU launching them takes longer than reading
#: them, and less evenly: two answers of 16 MiB at a time took 19 to 43 µs each on an H200.
_TOGETHER = {"cpu": 32 << 20, "cuda": 1 << 30}
#: How many times the cache's size is written to empty it.
_FLUSHES = 2


class Built(Protocol):
    """A constructed candidate with its weights."""

    built: Any

    def shown(self, result: Any) -> tuple[dict[str, Any], int]:
        """One returned value in full, as the reply to a run has it, and the memory that holds it."""
        ...


class Session(Protocol):
    """What the worker does for any kind of run."""

    runner: Runner

    def decoded(self, node: Any, shared: mmap.mmap) -> Any: ...

    def constructed(self, header: dict[str, Any], shared: mmap.mmap) -> Built: ...

    def fell(self, error: BaseException, phase: str) -> dict[str, Any]:
        """The reply that says so; ends the process where the device is dead."""
        ...


class Bench:
    """One candidate, constructed once, and called in spans."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._run: Built
        self._bases: list[_Base] = []
        self._calls: list[tuple[Any, Any]] = []
        self._answers: list[Any] = []
        self._flush = torch.empty(0)

    def answer(self, header: dict[str, Any], fds: list[int]) -> tuple[dict[str, Any], int]:
        what = header["do"]
        runner = self._session.runner
        try:
            with runner.unobserved(), runner.answering(), torch.no_grad():
                if what == "show":
                    return self._run.shown(self._answers[header["number"]])
                if what == "call":
                    return self.call(), -1
                if what == "seal":
                    return self.seal(), -1
                shared = mmap.mmap(fds[0], header["memory"])
                part = self.prepare if what == "prepare" else self.place
                return part(header, shared), -1
        except BaseException as error:
            return self._session.fell(error, what), -1

    def prepare(self, header: dict[str, Any], shared: mmap.mmap) -> dict[str, Any]:
        """Constructs the candidate and places the bases."""
        self._run = self._session.constructed(header, shared)
        varied = set(header["varied"])
        decoded = [
            (self._session.decoded(b["args"], shared), self._session.decoded(b["kwargs"], shared))
            for b in header["bases"]
        ]
        self._tree = decoded[0]
        self._bases = []
        for root, index in (("args", 0), ("kwargs", 1)):
            rows = [arrays.tensors_in(base[index], root) for base in decoded]
            for each in zip(*rows, strict=True):
                path = each[0][0]
                self._bases.append(_Base(path, [t for _, t in each], path in varied))
        device = self._session.runner.device()
        cache = header["cache"]
        if device.type == "cuda":
            cache = torch.cuda.get_device_properties(device).L2_cache_size
        words = max(_FLUSHES * cache // 8, 1)
        self._flush = torch.empty(words, dtype=torch.int64, device=device)
        self._session.runner.wait()
        return {"status": "prepared", "cache": cache}

    def place(self, header: dict[str, Any], shared: mmap.mmap) -> dict[str, Any]:
        """The inputs of a span's calls. The cache holds none of them afterwards."""
        self._calls, self._answers = [], []
        count = header["count"]
        pads = torch.frombuffer(shared, dtype=torch.int64, count=count * WIDTH)
        pads = pads.to(self._session.runner.device()).view(count, WIDTH)
        made = {base.path: base.spread(pads) for base in self._bases}

        def given(number: int) -> Callable[[str, Any], Any]:
            return lambda path, leaf: made[path][number] if path in made else leaf

        args, kwargs = self._tree
        for number in range(count):
            leaf = given(number)
            self._calls.append(
                (arrays.map_leaves(args, leaf, "args"), arrays.map_leaves(kwargs, leaf, "kwargs"))
            )
        self._flush.zero_()
        gc.collect()
        self._session.runner.wait()
        return {"status": "placed"}

    def call(self) -> dict[str, Any]:
        """Makes the calls; tells what this process's own clock says they took."""
        built, runner = self._run.built, self._session.runner
        answers: list[Any] = []
        watch = _Events() if self._flush.is_cuda else _Watch()
        gc.disable()
        watch.start()
        for args, kwargs in self._calls:
            answers.append(built(*args, **kwargs))
        watch.stop()
        runner.wait()
        gc.enable()
        self._answers = answers
        return {"status": "called", "claimed": watch.seconds()}

    def seal(self) -> dict[str, Any]:
        """A sum over the bits of each leaf of each answer."""
        leaves = [_leaves(answer) for answer in self._answers]
        nbytes = sum(t.numel() * t.element_size() for t in leaves[0])
        sums: list[list[int]] = [[] for _ in leaves]
        for column in zip(*leaves, strict=True):
            for number, total in enumerate(_bit_sums(column)):
                sums[number].append(total)
        return {"status": "sealed", "sums": sums, "nbytes": nbytes}


class _Base:
    """One tensor argument: its values in each base, as 64-bit words in rows as long as a pad."""

    def __init__(self, path: str, tensors: list[torch.Tensor], varied: bool) -> None:
        first = tensors[0]
        self.path = path
        self._dtype, self._shape = first.dtype, first.shape
        self._item = first.element_size()
        self._count = first.numel()
        self._mask = MASKS[arrays.dtype_name(first.dtype)] if varied else 0
        rows = -(-self._count * self._item // (8 * WIDTH))
        self._words = torch.zeros(
            (len(tensors), rows, WIDTH), dtype=torch.int64, device=first.device
        )
        for number, tensor in enumerate(tensors):
            raw = tensor.contiguous().view(-1).view(torch.uint8)
            self._words[number].view(-1).view(torch.uint8)[: raw.numel()] = raw

    def spread(self, pads: torch.Tensor) -> list[torch.Tensor]:
        """A tensor of its own for each call."""
        count = len(pads)
        if not self._count:
            return [torch.empty(self._shape, dtype=self._dtype, device=pads.device)] * count
        bases, rows, _ = self._words.shape
        out = torch.empty((count, rows, WIDTH), dtype=torch.int64, device=pads.device)
        masked = (pads & self._mask)[:, None, :]
        for number in range(min(bases, count)):
            torch.bitwise_xor(self._words[number], masked[number::bases], out=out[number::bases])
        each = rows * WIDTH * 8 // self._item
        strides = [1]
        for size in reversed(self._shape[1:]):
            strides.insert(0, strides[0] * size)
        values = out.view(-1).view(self._dtype)
        shape = (count, *self._shape)
        return list(values.as_strided(shape, (each, *strides[: len(self._shape)])).unbind())


class _Watch:
    """This process's own clock: nothing is queued, so that it may be read late."""

    def start(self) -> None:
        self._start = perf_counter()

    def stop(self) -> None:
        pass

    def seconds(self) -> float:
        return perf_counter() - self._start


class _Events:
    """The device's own clock, on the current stream."""

    def __init__(self) -> None:
        self._first: Any = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
        self._last: Any = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]

    def start(self) -> None:
        self._first.record()

    def stop(self) -> None:
        self._last.record()

    def seconds(self) -> float:
        return float(self._first.elapsed_time(self._last)) / 1e3


def _leaves(answer: Any) -> list[torch.Tensor]:
    found: list[torch.Tensor] = []

    def keep(path: str, leaf: Any) -> None:
        if isinstance(leaf, (bool, int, float)):
            leaf = torch.tensor(leaf)
        if isinstance(leaf, torch.Tensor):
            found.append(leaf)

    arrays.map_leaves(answer, keep)
    return found


def _bit_sums(column: tuple[torch.Tensor, ...]) -> list[int]:
    """As `ring.bit_sum`, of each tensor; small ones together, where a launch costs more than a sum."""
    flat = [_words(tensor) for tensor in column]
    if not flat[0].numel():
        return [0] * len(flat)
    together = _TOGETHER["cuda" if flat[0].is_cuda else "cpu"]
    step = max(1, together // max(1, flat[0].numel() * flat[0].element_size()))
    parts = []
    for start in range(0, len(flat), step):
        some = flat[start : start + step]
        alike = len({(t.numel(), t.dtype) for t in some}) == 1
        if alike and len(some) > 1:
            parts.append(torch.stack(some).sum(1, dtype=torch.int64))
        else:
            parts += [t.sum(dtype=torch.int64)[None] for t in some]
    total: list[int] = torch.cat(parts).tolist()
    return total


def _words(tensor: torch.Tensor) -> torch.Tensor:
    flat = tensor.detach().resolve_conj().resolve_neg().contiguous().view(-1)
    raw = flat.view(torch.uint8)
    if raw.numel() % 8:
        return raw
    return (raw.clone() if raw.storage_offset() % 8 else raw).view(torch.int64)
