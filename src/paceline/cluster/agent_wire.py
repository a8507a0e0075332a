"""Connection between the head of a run and the agent of a node: key, handshake and messages.

The head is the process of `paceline train` or `paceline sweep`. Messages are pickled, and are read
only after both ends have proved that they know the same key. All connections begin in `accept` or
`connect`.
"""

import os
import socket
import struct
import time
from collections.abc import Generator
from contextlib import contextmanager
from multiprocessing import AuthenticationError
from multiprocessing.connection import Connection, answer_challenge, deliver_challenge
from typing import NamedTuple

from paceline.cluster.supervisor import Task
from paceline.errors import SettingError
from paceline.exchange.node import address_toward
from paceline.exchange.wire.connection import prepare

KEY, HEAD = "PACELINE_AGENT_KEY", "PACELINE_HEAD"  # environment variables, see `agent_key`, `head`
READY = "ready"  # an agent's word once its processes start fast
END, OVER = "end", "over"  # the head's last word of a point, and the agent's
_LEAST_KEY = 16  # characters
_HANDSHAKE_SECONDS = 5
_SILENCE_SECONDS = 25  # after which a node whose machine or link has failed is gone
_AGAIN_SECONDS = 0.2


class Introduction(NamedTuple):
    """First message of an agent: name of its host, and the address at which others reach it."""

    host: str
    address: str


class Order(NamedTuple):
    """Processes of a point that an agent is to start, by rank. `environment`: variables of all of
    them. The task's folder is relative to the project; its code is the digest of the head's source.
    """

    ranks: list[int]
    environment: dict[str, str]
    task: Task


class Kill(NamedTuple):
    """Order to kill one of the processes."""

    rank: int


class Ended(NamedTuple):
    """End of a process, with or without a report."""

    exit_code: int | None


def agent_key() -> bytes:
    """Read the key that the head and all agents share. Raises SettingError if it is not set."""
    key = os.environ.get(KEY, "")
    if len(key) < _LEAST_KEY:
        message = f"an environment variable of {_LEAST_KEY} characters or more is needed, the same "
        raise SettingError(KEY, f"{message}for the head and all agents; openssl rand -hex 32")
    return key.encode()


def head(given: str | None = None) -> tuple[str, int]:
    """Parse HOST:PORT, the address on which the head listens, as given or from PACELINE_HEAD.
    Raises SettingError if there is neither, or if it is not valid.
    """
    text = given or os.environ.get(HEAD, "")
    host, _, port = text.rpartition(":")
    if not host or not port.isdigit() or not 0 < int(port) < 2**16:
        message = f"HOST:PORT is needed, the address on which the head listens, not {text!r}"
        raise SettingError(HEAD, message)
    return host, int(port)


def accept(peer: socket.socket, key: bytes) -> tuple[Introduction, Connection]:
    """Connect the head with a calling agent that knows the key. Raises AuthenticationError if it
    does not know it, and EOFError or OSError if it does not answer.
    """
    with _handshake(peer) as wire:
        deliver_challenge(wire, key)
        answer_challenge(wire, key)
        return wire.recv(), wire


def connect(head: tuple[str, int], key: bytes, patience_seconds: float) -> Connection:
    """Connect an agent with the head, waiting up to `patience_seconds`. Raises SettingError if the
    head does not come, or does not know the key.
    """
    until, where = time.monotonic() + patience_seconds, f"{head[0]}:{head[1]}"
    while True:
        try:
            with _handshake(socket.create_connection(head, _HANDSHAKE_SECONDS)) as wire:
                answer_challenge(wire, key)
                deliver_challenge(wire, key)
            wire.send(Introduction(socket.gethostname(), address_toward(head[0])))
            return wire
        except AuthenticationError:
            raise SettingError(KEY, f"the head at {where} has another key") from None
        except (EOFError, OSError) as error:
            if time.monotonic() > until:
                message = f"nothing answers at {where} for {patience_seconds:g} s: {error}"
                raise SettingError(HEAD, message) from None
            time.sleep(_AGAIN_SECONDS)


@contextmanager
def _handshake(peer: socket.socket) -> Generator[Connection]:
    """Yield a connection whose other end must answer quickly during the handshake."""
    prepare(peer)
    peer.setblocking(True)
    peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, 1000 * _SILENCE_SECONDS)
    peer.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, struct.pack("ll", _HANDSHAKE_SECONDS, 0))
    with peer:
        wire = Connection(os.dup(peer.fileno()))
        try:
            yield wire
        except BaseException:
            wire.close()
            raise
        peer.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, struct.pack("ll", 0, 0))
