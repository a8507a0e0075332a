"""Header of every message between a worker and a server: 16 bytes on every wire."""

import struct
from typing import NamedTuple

_STRUCT = struct.Struct("<qq")  # float32 would count exactly only to 2^24
HEADER_BYTES = _STRUCT.size


class Header(NamedTuple):
    """Version of the weights that a worker read or a server sends, and flags.

    `proceed`: to a server, True for a push, False if the worker leaves, after which no body
    follows; to a worker, True if it may take another step, False if the budget is used up. `keep`:
    to a server, True if it is to keep its state for a checkpoint: no body follows, and no answer.
    `stop`, with `proceed`: to a worker, True if it is to stop before that step, for a checkpoint;
    to a server, True if it is to stop all workers so.
    """

    version: int
    proceed: bool
    keep: bool = False
    stop: bool = False


def pack(header: Header) -> bytes:
    """Turn a header into HEADER_BYTES bytes."""
    return _STRUCT.pack(header.version, header.proceed + 2 * header.keep + 4 * header.stop)


def unpack(content: bytes | bytearray) -> Header:
    """Read a header; raise ValueError for bytes that `pack` cannot have made."""
    version, flags = _STRUCT.unpack(content)
    if version < 0 or flags not in (0, 1, 2, 5):
        raise ValueError(f"no header: {bytes(content).hex()}")
    return Header(version, bool(flags & 1), flags == 2, flags == 5)
