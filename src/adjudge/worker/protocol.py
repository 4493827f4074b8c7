"""The wire: a length, then JSON. Tensors travel as raw bytes in shared memory, never pickled."""

from __future__ import annotations

import array
import json
import os
import socket
import struct
import time
from typing import Any

#: Set in the environment of every worker.
INSIDE = "ADJUDGE_WORKER"
#: Longest header accepted in either direction. Headers hold shapes and names, never values.
LARGEST_HEADER = 8 << 20
#: Most file descriptors in one message.
_MOST_FDS = 4

#: Byte repeated in memory for each fill: 0xFF.. is NaN in every float format and -1 in integers;
#: 0x71.. is about 1.2e30 in float32 and bfloat16, 11144 in float16, 1e238 in float64.
FILL_BYTES = {"zero": 0x00, "nan": 0xFF, "finite": 0x71}
#: Bytes of guard on each side of a tensor. One page: an overrun by a whole block of 1024 float32.
GUARD = 4096
#: Every storage starts at a multiple of this, as GPU allocators promise.
ALIGN = 256
#: Bytes by which storages lie elsewhere in a run that is displaced: workers are forks of one process, so
#: that addresses of two of them are equal otherwise. Another page, and other bits in it: 17 pages and
#: three times the alignment.
DISPLACED = 17 * GUARD + 3 * ALIGN


class Broken(Exception):
    """The peer broke the protocol."""


def send(channel: socket.socket, header: dict[str, Any], fds: tuple[int, ...] = ()) -> None:
    body = json.dumps(header, allow_nan=True).encode()
    ancillary = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", fds))] if fds else []
    channel.sendmsg([struct.pack(">I", len(body))], ancillary)
    channel.sendall(body)


def receive(
    channel: socket.socket, deadline: float | None = None
) -> tuple[dict[str, Any], list[int]] | None:
    """The next message and its descriptors; None when the peer is gone.

    Args:
        deadline: of the whole message, on the monotonic clock: a peer that sends a byte at a time
            never exceeds the channel's own timeout.

    Raises:
        Broken: the bytes are not a message.
        TimeoutError: the message is not there in time.
    """
    size = socket.CMSG_LEN(_MOST_FDS * array.array("i").itemsize)
    first, ancillary, _, _ = channel.recvmsg(4, size)
    fds = _descriptors(ancillary)
    try:
        if not first:
            return None
        head = first + _exactly(channel, 4 - len(first), deadline)
        length = struct.unpack(">I", head)[0]
        if length > LARGEST_HEADER:
            raise Broken(f"a header of {length} bytes")
        found = json.loads(_exactly(channel, length, deadline))
        if not isinstance(found, dict):
            raise Broken("a header that is not a mapping")
    except BaseException as error:
        for fd in fds:
            os.close(fd)
        if isinstance(error, (ValueError, EOFError, RecursionError)):
            raise Broken(f"a malformed header: {error}") from error
        raise
    return found, fds


def _descriptors(ancillary: list[tuple[int, int, bytes]]) -> list[int]:
    fds = array.array("i")
    for level, kind, data in ancillary:
        if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
            fds.frombytes(data[: len(data) - len(data) % fds.itemsize])
    return list(fds)


def _exactly(channel: socket.socket, count: int, deadline: float | None) -> bytes:
    parts = []
    while count:
        if deadline is not None:
            left = deadline - time.monotonic()
            if left <= 0:
                raise TimeoutError
            channel.settimeout(left)
        part = channel.recv(min(count, 1 << 20))
        if not part:
            raise EOFError("the message ended early")
        parts.append(part)
        count -= len(part)
    return b"".join(parts)


def aligned(offset: int) -> int:
    return (offset + ALIGN - 1) // ALIGN * ALIGN
