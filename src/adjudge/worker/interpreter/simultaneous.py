"""The schedule in which all program instances run at once: none sees what another one writes.

A serial order shows no lost update. So a launch is run twice. The first time every plain access is
recorded, then memory is put back; the second time a load that raced with a store of another instance
reads what was there before the launch, as it would if all instances had started together. What an
instance wrote itself it sees, and so it does what another one had finished before: an atomic on one
element orders what its instance did earlier before what others do after their own atomic on it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
from triton._C.libtriton import interpreter as _memory

from adjudge.observation import Race

Array = npt.NDArray[Any]
Instance = tuple[int, int, int]

#: Lanes recorded of one launch; more than a small probe ever touches.
MOST_LANES = 1 << 24
#: Races reported of one launch.
MOST_RACES = 50


class TooMany(Exception):
    """The launch touches more memory than is recorded."""


@dataclass(frozen=True, slots=True)
class _Access:
    """Lanes that one instruction of one instance touched: addresses, and what stood there before."""

    instance: int
    addresses: Array
    before: Array
    writes: bool
    #: How many ordering atomics the instance had made, and what it knew of the others' by then.
    epoch: int
    known: Mapping[int, int]
    tensor: str
    line: int


@dataclass(slots=True)
class Recorder:
    """What the instances of one launch do, or, with `visible`, how a second run of it differs."""

    #: What a racing load reads in place of what is there, by instance and address; None records.
    visible: Mapping[tuple[int, int], bytes] | None = None
    instance: int = -1
    _lanes: int = 0
    _accesses: list[_Access] = field(default_factory=list)
    #: Ordering atomics made by this instance, and by how many of each other one it comes after.
    _epoch: int = 0
    _known: dict[int, int] = field(default_factory=dict)
    #: The same for whoever makes an atomic on an address next.
    _handed_on: dict[int, dict[int, int]] = field(default_factory=dict)
    _written: set[int] = field(default_factory=set)

    def begin(self, instance: int) -> None:
        self.instance = instance
        self._epoch, self._known, self._written = 0, {}, set()

    def loaded(
        self, addresses: Array, lanes: Array, values: Array, tensor: str, line: int
    ) -> Array:
        """Records a load that gave `values`; what the instance is to see of it."""
        if self.visible is None:
            self._record(addresses[lanes], values[lanes], False, tensor, line)
            return values
        seen = values
        for place in zip(*np.nonzero(lanes), strict=True) if values.ndim else [()]:
            address = int(addresses[place])
            other = self.visible.get((self.instance, address))
            if other is not None and address not in self._written and lanes[place]:
                seen = seen.copy() if seen is values else seen
                seen[place] = np.frombuffer(other, dtype=values.dtype)[0]
        return seen

    def storing(
        self, addresses: Array, lanes: Array, dtype: np.dtype[Any], tensor: str, line: int
    ) -> None:
        """Records a store that is about to be made."""
        if self.visible is not None:
            self._written.update(int(a) for a in addresses[lanes])
            return
        self._record(addresses[lanes], _held(addresses[lanes], dtype), True, tensor, line)

    def atomic(self, addresses: Array, lanes: Array, dtype: np.dtype[Any], orders: bool) -> None:
        """Records an atomic that is about to be made."""
        touched = addresses[lanes]
        if self.visible is None:
            self._record(touched, _held(touched, dtype), True, "", 0)
        else:
            self._written.update(int(a) for a in touched)
        if orders and touched.size == 1:
            self._meet(int(touched[0]))

    def _meet(self, address: int) -> None:
        handed = self._handed_on.get(address, {})
        known = {n: max(self._known.get(n, 0), handed.get(n, 0)) for n in {*self._known, *handed}}
        self._epoch += 1
        self._known = known
        self._handed_on[address] = {**known, self.instance: self._epoch}

    def _record(
        self,
        addresses: Array,
        before: Array,
        writes: bool,
        tensor: str,
        line: int,
    ) -> None:
        self._lanes += addresses.size
        if self._lanes > MOST_LANES:
            raise TooMany
        self._accesses.append(
            _Access(
                self.instance,
                addresses.copy(),
                before.copy(),
                writes,
                self._epoch,
                self._known,
                tensor,
                line,
            )
        )

    def undo(self) -> None:
        """Puts back what stood in memory before the launch."""
        for access in reversed(self._accesses):
            if access.writes and access.addresses.size:
                _memory.store(
                    access.addresses, access.before, np.ones(access.addresses.shape, bool)
                )

    def races(self, kernel: str) -> tuple[list[Race], dict[tuple[int, int], bytes]]:
        """Loads that no order protects from another instance's store of another value, and what they
        read if all instances start together."""
        written: dict[int, list[tuple[int, _Access]]] = {}
        first: dict[int, bytes] = {}
        for number, access in enumerate(self._accesses):
            if access.writes:
                for address, before in zip(access.addresses, access.before, strict=True):
                    written.setdefault(int(address), []).append((number, access))
                    first.setdefault(int(address), before.tobytes())
        if not written:
            return [], {}
        stored = np.fromiter(written, dtype=np.uint64, count=len(written))
        found: list[Race] = []
        visible: dict[tuple[int, int], bytes] = {}
        for number, access in enumerate(self._accesses):
            if access.writes:
                continue
            for place in np.flatnonzero(np.isin(access.addresses, stored)):
                address = int(access.addresses[place])
                if access.before[place].tobytes() == first[address]:
                    continue  # It saw what was there before the launch.
                others = [
                    store
                    for at, store in written[address]
                    if at < number and store.instance != access.instance
                ]
                own = any(
                    at < number and store.instance == access.instance
                    for at, store in written[address]
                )
                if own or not others or any(_before(store, access) for store in others):
                    continue
                visible[access.instance, address] = first[address]
                if len(found) < MOST_RACES:
                    pair = (others[-1].instance, access.instance)
                    found.append(
                        Race(kernel=kernel, tensor=access.tensor, line=access.line, instances=pair)
                    )
        return found, visible


def _before(store: _Access, access: _Access) -> bool:
    """Whether atomics order the store before the access."""
    return access.known.get(store.instance, 0) > store.epoch


def _held(addresses: Array, dtype: np.dtype[Any]) -> Array:
    every = np.ones(addresses.shape, dtype=bool)
    held: Array = _memory.load(addresses, every, np.zeros(addresses.shape, dtype), dtype)
    return held


def launch(
    instances: Iterable[Instance],
    run: Callable[[Instance], None],
    use: Callable[[Recorder | None], None],
    kernel: str,
) -> list[Race]:
    """Runs all instances as if none saw what another one writes; the races that this shows.

    Args:
        run: runs one instance.
        use: makes the interpreter report its accesses to a recorder, or to none.
    """
    ordered = list(instances)

    def once(recorder: Recorder) -> None:
        use(recorder)
        try:
            for number, instance in enumerate(ordered):
                recorder.begin(number)
                run(instance)
        finally:
            use(None)

    recorder = Recorder()
    once(recorder)
    races, visible = recorder.races(kernel)
    if visible:
        recorder.undo()
        once(Recorder(visible))
    return races
