"""Connections between the workers and servers of one run.

The sockets of a server listen from the start; it stops listening when all its workers have come,
each of which has passed the handshake of handshake.py. Between nodes each message that follows is
sealed. Inside a node it is not: the kernel carries it between two processes of the same user, which
both ends check.
"""

import os
import secrets
import socket
import struct
import time
import weakref
from collections.abc import Iterator
from typing import NamedTuple

from paceline.exchange.node import cluster_address, this_node
from paceline.exchange.wire.handshake import PATIENCE, Reception, Seals, call, is_of_this_user

_HELLO = struct.Struct("<IQQ")
_BACKLOG = 4096  # connections that wait to be accepted; more try again, see `_reach`
_AGAIN_SECONDS = 0.01
# A connection to a node that has failed ends after 25 s.
_KEEPALIVE = {"TCP_KEEPIDLE": 10, "TCP_KEEPINTVL": 5, "TCP_KEEPCNT": 3}
_open: weakref.WeakSet[socket.socket] = weakref.WeakSet()


class Address(NamedTuple):
    """Address of a server. `local`: its abstract Unix socket, for workers on the same node."""

    node: str
    local: str
    host: str
    port: int


class Hello(NamedTuple):
    """Message of a worker: its rank, and the sizes of a push and of an answer [bytes]."""

    worker: int
    push_bytes: int
    pull_bytes: int

    def pack(self) -> bytes:
        return _HELLO.pack(*self)


class Connected(NamedTuple):
    """Connection to a worker, or to a server. `seals`: of its messages; None inside a node, where
    it is a Unix socket over which memory can be shared.
    """

    worker: int
    connection: socket.socket
    seals: Seals | None


def purpose(server: int) -> str:
    """Return the purpose of the handshakes of the server of this rank."""
    return f"server {server} of a run"


def connect(
    secret: bytes,
    address: Address,
    server: int,
    hello: Hello,
    *,
    node: str,
    timeout_seconds: float,
) -> Connected:
    """Connect a worker on `node` to the server of the rank `server` of the run. Raises OSError if
    it cannot be reached, refuses the worker, or does not know the secret.
    """
    shared = address.node == node
    until = time.monotonic() + timeout_seconds
    connection = _reach(address, shared, timeout_seconds)
    try:
        if not is_of_this_user(connection):
            raise ConnectionError("it belongs to another user")
        seals = call(connection, secret, purpose(server), hello.pack(), until)
    except BaseException:
        connection.close()
        raise
    prepare(connection)
    return Connected(hello.worker, connection, None if shared else seals)


def _reach(address: Address, shared: bool, timeout_seconds: float) -> socket.socket:
    if not shared:
        return socket.create_connection((address.host, address.port), timeout_seconds)
    connection = socket.socket(socket.AF_UNIX)
    connection.settimeout(timeout_seconds)
    until = time.monotonic() + timeout_seconds
    try:
        while True:
            try:
                connection.connect(f"\0{address.local}")
                return connection
            except BlockingIOError:  # a Unix socket whose backlog is full says so at once
                if time.monotonic() > until:
                    raise ConnectionError("too many others wait for it") from None
                time.sleep(_AGAIN_SECONDS)
    except OSError:
        connection.close()
        raise


def prepare(connection: socket.socket) -> None:
    """Set options: small messages leave at once, a dead process or node is detected."""
    _open.add(connection)
    if connection.family == socket.AF_UNIX:
        return
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, value in _KEEPALIVE.items():
        connection.setsockopt(socket.IPPROTO_TCP, getattr(socket, option), value)


def _close_all() -> None:
    """Close all connections in a forked child, which would keep them open after its parent."""
    for connection in list(_open):
        connection.close()


os.register_at_fork(after_in_child=_close_all)


class Listener:
    """Sockets of the server of the rank `server`, which listen from the start, so that no worker
    connects too early. `expected`: hellos of all workers. `patience`: time limit of a handshake
    [seconds].
    """

    def __init__(
        self, secret: bytes, server: int, expected: list[Hello], patience: float = PATIENCE
    ) -> None:
        self._patience = patience
        self._missing = {hello.pack(): hello for hello in expected}
        local, host = f"paceline-{secrets.token_hex(8)}", cluster_address()
        self._unix = _listening(socket.AF_UNIX, f"\0{local}")
        tcp = _listening(socket.AF_INET6 if ":" in host else socket.AF_INET, (host, 0))
        self.address = Address(this_node(), local, host, tcp.getsockname()[1])
        listening, expects = (self._unix, tcp), self._missing.__contains__
        self._reception = Reception(
            listening, secret, purpose(server), _HELLO.size, expects, patience
        )

    def meet(self, timeout_seconds: float) -> Iterator[Connected]:
        """Yield each worker as it connects, and close the sockets after the last. Raises
        TimeoutError if workers are missing after `timeout_seconds`.
        """
        deadline = time.monotonic() + timeout_seconds
        try:
            while self._missing:
                left = deadline - time.monotonic()
                if left < 0:
                    missing = ", ".join(str(hello.worker) for hello in self._missing.values())
                    raise TimeoutError(f"no connection from worker {missing}")
                for caller in self._reception.greet(left):
                    worker = self._missing.pop(caller.message).worker
                    caller.connection.settimeout(self._patience)
                    prepare(caller.connection)
                    seals = None if caller.listening is self._unix else caller.seals
                    yield Connected(worker, caller.connection, seals)
        finally:
            self.close()

    def close(self) -> None:
        """Stop listening, and close the connections that are not authenticated."""
        self._reception.close()


def _listening(family: int, address: str | tuple[str, int]) -> socket.socket:
    listening = socket.socket(family)
    listening.bind(address)
    listening.listen(_BACKLOG)
    return listening
