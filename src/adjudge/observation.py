"""Observation: what came back from one run. Bytes and facts, no judgement.

Built by the judge from a worker's reply, with every field bounded and checked on the way in.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

import numpy as np
import numpy.typing as npt

from adjudge.task import Launch

#: What the path of a gradient begins with; the name of an input or parameter follows.
GRADIENT = "grad "
#: What the path of an input's, a parameter's or a buffer's content after the call begins with; its name
#: follows.
FINAL = "final "
#: What the names of cotangents begin with, beside "args" and "kwargs".
COTANGENTS = "cotangents"


class Status(StrEnum):
    #: Every declared output came back in full.
    ANSWERED = "answered"
    #: A Python exception left the candidate's code.
    RAISED = "raised"
    #: The process died of a signal (segmentation fault, abort, killed for memory).
    CRASHED = "crashed"
    #: The process ended by itself without a reply (`sys.exit`, `os._exit`), whatever its code.
    EXITED = "exited"
    #: No reply within the time limit.
    HUNG = "hung"
    #: The reply broke the protocol, or was larger than allowed.
    MALFORMED = "malformed"
    #: The return value is not made of tensors and numbers.
    UNREADABLE = "unreadable"
    #: The runner lacks something the candidate legitimately needs. Never held against it.
    UNSUPPORTED = "unsupported"


@dataclass(frozen=True, slots=True, kw_only=True)
class OutputTensor:
    """One leaf of the returned structure."""

    #: Path in the structure: "" for a bare tensor, "[0]", "['loss']", ...
    path: str
    #: Values, C-contiguous. bfloat16 and float8 arrive as ml_dtypes arrays.
    data: npt.NDArray[Any]
    #: torch's name of the dtype, without the prefix.
    dtype: str
    #: Strides in elements, as the candidate returned them.
    strides: tuple[int, ...]
    #: Device as the candidate's tensor claims it: "cuda:0" or "cpu".
    device: str
    requires_grad: bool = False
    #: Names of the inputs and parameters whose storage this output shares.
    aliases: tuple[str, ...] = ()
    #: True if it shares storage with an output of an earlier call that is still alive.
    aliases_previous: bool = False
    #: True for a Python number returned in place of a tensor.
    scalar: bool = False
    #: The digest, once it was asked for.
    _digest: list[str] = field(default_factory=list, init=False, repr=False, compare=False)

    @property
    def name(self) -> str:
        """What a report calls it: "output[0]", "grad args[0]" for a gradient, "final args[0]" for what
        an input holds after the call."""
        return self.path if self.path.startswith((GRADIENT, FINAL)) else f"output{self.path}"

    @property
    def digest(self) -> str:
        """SHA-256 over dtype, shape and raw bytes."""
        if not self._digest:
            head = f"{self.dtype}{self.data.shape}".encode()
            whole = hashlib.sha256(head + np.ascontiguousarray(self.data).tobytes())
            self._digest.append(whole.hexdigest())
        return self._digest[0]


@dataclass(frozen=True, slots=True, kw_only=True)
class AccessFault:
    """An address outside every declared tensor, seen by the interpreter, or a changed guard."""

    #: "load", "store", "atomic" or "guard".
    kind: str
    #: Which tensor it belongs to, as well as that is known.
    tensor: str
    #: Distance in bytes past the end (positive) or before the start (negative).
    offset: int
    kernel: str = ""
    line: int = 0
    lanes: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Race:
    """Two program instances touched one address without atomics, at least one writing."""

    kernel: str
    tensor: str
    line: int
    instances: tuple[int, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Raised:
    """An exception that left the candidate's code."""

    type: str
    message: str
    #: Formatted traceback, trimmed of our own frames and bounded.
    traceback: str
    #: "load", "construct", "weights" or "call".
    phase: str
    #: True if the innermost frame outside torch and triton is the candidate's.
    from_candidate: bool = True
    #: What a compiler or the interpreter says of a kernel, whole, with the kernel's name and the line of
    #: the candidate's file; "" for other errors.
    complaint: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Demand:
    """What the machine code of one kernel asks of one chip."""

    #: The whole demand, or why there is no machine code to read it from.
    words: str
    kernel: str = ""
    chip: str = ""
    #: What the chip does not have.
    excesses: tuple[str, ...] = ()
    #: Loads and stores of registers that did not fit.
    spills: int = 0
    #: Whether there is no machine code to read.
    unread: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Observation:
    status: Status
    outputs: tuple[OutputTensor, ...] = ()
    #: The returned structure without its leaves: "tensor", "(tensor, tensor)", "{'a': tensor}".
    structure: str = ""
    raised: Raised | None = None
    #: Signal name or exit code, in words.
    ending: str = ""
    #: Argument paths of inputs whose bytes differ afterwards. Checked by the judge in its own memory.
    mutated_inputs: tuple[str, ...] = ()
    #: Names of parameters and buffers whose bytes differ afterwards.
    mutated_parameters: tuple[str, ...] = ()
    #: What the inputs that the reference writes hold after the observed call, read by the judge in its
    #: own memory.
    finals: tuple[OutputTensor, ...] = ()
    #: What the parameters and buffers that the reference writes hold then, those that the candidate has;
    #: none after a history, which has written them too.
    state: tuple[OutputTensor, ...] = ()
    faults: tuple[AccessFault, ...] = ()
    races: tuple[Race, ...] = ()
    launches: tuple[Launch, ...] = ()
    #: What the candidate did to torch, triton, timers, threads, files, network: one phrase each.
    tampering: tuple[str, ...] = ()
    #: Refusals by the sandbox that came from torch, triton or a compiler: recorded, not charged.
    sandbox_notes: tuple[str, ...] = ()
    #: Digest of the outputs of each call made, the observed one last.
    call_digests: tuple[str, ...] = ()
    #: True if an earlier call's output changed after a later call.
    earlier_output_changed: bool = False
    #: Where gradients were asked for: how the candidate gives them ("autograd", "function" with a
    #: custom `torch.autograd.Function` in the graph, "explicit" by a backward of its own, "" not at
    #: all).
    backward: str = ""
    #: Inputs and parameters whose gradient was asked for and is None.
    missing: tuple[str, ...] = ()
    #: Outputs that have a cotangent and no graph, by path.
    disconnected: tuple[str, ...] = ()
    #: Bytes of tensors alive at the peak of the observed call, beyond those alive before it.
    peak_bytes: int = 0
    #: Bytes that the candidate had allocated and not given back, after each call.
    live_bytes: tuple[int, ...] = ()
    #: Operations of torch that computed something in the observed run, by name.
    library: tuple[str, ...] = ()
    stdout: str = ""
    #: Seconds inside the worker for the observed call.
    seconds: float = 0.0
    #: Seconds of each compilation of a kernel in the run, as the worker tells them.
    compiled: tuple[float, ...] = ()
    #: Why the runner could not do it (UNSUPPORTED), or other facts worth a note.
    notes: tuple[str, ...] = field(default=())

    @property
    def answered(self) -> bool:
        return self.status is Status.ANSWERED

    @property
    def digests(self) -> tuple[str, ...]:
        """Of the outputs, then of what the call has left in its inputs."""
        return tuple(o.digest for o in (*self.outputs, *self.finals))

    @property
    def state_digests(self) -> tuple[str, ...]:
        return tuple(o.digest for o in self.state)
