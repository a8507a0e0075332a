"""Authenticated connection between a worker and a server of one run."""

import hmac
import os
import socket
import time
import weakref
from typing import NamedTuple

from paceline.exchange.wire.handshake import (
    CHALLENGE_BYTES,
    PROOF_BYTES,
    Hello,
    challenge,
    say_hello,
    server_proof,
)

# A connection to a node that has failed ends after 25 s.
_KEEPALIVE = {"TCP_KEEPIDLE": 10, "TCP_KEEPINTVL": 5, "TCP_KEEPCNT": 3}
_AGAIN_SECONDS = 0.01
_open: weakref.WeakSet[socket.socket] = weakref.WeakSet()


def _close_all() -> None:
    """Close all connections in a forked child, such as a DataLoader's.

    The child would otherwise keep them open when its parent is dead.
    """
    for connection in list(_open):
        connection.close()


os.register_at_fork(after_in_child=_close_all)


class Address(NamedTuple):
    """Address of a server. `local`: its abstract Unix socket, for workers on its node."""

    node: str
    local: str
    host: str
    port: int


def connect(
    secret: bytes, address: Address, hello: Hello, *, node: str, timeout_seconds: float
) -> tuple[socket.socket, bool]:
    """Connect a worker on `node` to a server.

    Returns the connection, and True if the two can share memory. Raises OSError if the server
    cannot be reached, refuses the worker, or does not know the secret.
    """
    shared = address.node == node
    connection = _reach(address, shared, timeout_seconds)
    try:
        _introduce(connection, secret, hello)
    except BaseException:
        connection.close()
        raise
    prepare(connection)
    return connection, shared


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


def _introduce(connection: socket.socket, secret: bytes, hello: Hello) -> None:
    challenged, challenging = _exactly(connection, CHALLENGE_BYTES), challenge()
    connection.sendall(say_hello(secret, hello, challenged, challenging))
    proof = _exactly(connection, PROOF_BYTES)
    if not hmac.compare_digest(proof, server_proof(secret, challenging, challenged)):
        raise ConnectionError("a server that does not know the secret of the run")


def prepare(connection: socket.socket) -> None:
    """Set options: send small messages at once, detect the end of the other process or node."""
    _open.add(connection)
    if connection.family == socket.AF_UNIX:
        return
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, value in _KEEPALIVE.items():
        connection.setsockopt(socket.IPPROTO_TCP, getattr(socket, option), value)


def _exactly(connection: socket.socket, num_bytes: int) -> bytes:
    content = b""
    while len(content) < num_bytes:
        more = connection.recv(num_bytes - len(content))
        if not more:
            raise ConnectionError("the server ended the connection: it expects another worker")
        content += more
    return content
