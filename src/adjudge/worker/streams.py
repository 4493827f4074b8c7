"""Work of a call that the caller's stream does not wait for.

A call is done when the stream that it was made on is: that is all that events, and later work there,
wait for. What a candidate leaves on another stream is usually finished in time all the same. Torch's own
streams are therefore kept busy beforehand: what is put on one of them without an order is late, and what
the caller's stream waits for is not.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from adjudge import arrays

#: Streams that torch hands out in turn, of each priority (c10/cuda/CUDAStream.cpp), and the priorities
#: that `torch.cuda.Stream` gives: the usual one and the high one.
_STREAMS, _PRIORITIES = 32, (0, -1)
#: Clock cycles for which each is kept busy: 10 ms at an H200's 1.98 GHz. Reading a small answer, which
#: is what must be done by then, takes a tenth of a millisecond.
_CYCLES = 20_000_000

LATE = "left work on a stream that the caller's does not wait for"


#: What a text has that uses a stream, or that can put the name of one together.
_NAMES = ("tream", "getattr", "__dict__", "__getattribute__", "vars(", "exec(", "eval(", "ctypes")


def named_in(source: str) -> bool:
    """Whether a candidate of this text may use streams: it names one, or could do so unread."""
    return any(name in source for name in _NAMES)


class Streams:
    """Torch's own streams on one device, and the caller's among them."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._others = [
            torch.cuda.Stream(device, priority=priority)  # type: ignore[no-untyped-call]
            for priority in _PRIORITIES
            for _ in range(_STREAMS)
        ]
        self._callers = torch.cuda.current_stream(device)

    def hold(self) -> None:
        """Before a call: keeps every stream but the caller's busy for a while."""
        self._callers = torch.cuda.current_stream(self._device)
        for stream in self._others:
            if stream != self._callers:
                with torch.cuda.stream(stream):
                    torch.cuda._sleep(_CYCLES)  # type: ignore[no-untyped-call]

    def late(self, tensors: Sequence[torch.Tensor]) -> bool:
        """After a call: whether what it has returned was not there yet when the caller's stream was
        done. All streams are done afterwards."""
        with torch.cuda.stream(self._callers):
            self._callers.synchronize()
            early = [arrays.to_numpy(tensor).tobytes() for tensor in tensors]
        torch.cuda.synchronize(self._device)
        return early != [arrays.to_numpy(tensor).tobytes() for tensor in tensors]
