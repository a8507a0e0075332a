"""Authenticated connections between the workers and servers of one run.

Both ends of a new connection prove that they know the secret of the run:

    server -> worker:   a random number (challenge)
    worker -> server:   hello: its rank, the sizes of bodies, another challenge; its proof
    server -> worker:   its proof

A proof is the HMAC-SHA256 of the preceding messages, with the secret as its key. A process without
the secret receives only 32 random bytes, and is disconnected after a wrong message or a time limit.
The server stops listening when all workers are connected.
"""

import hmac
import os
import secrets
import selectors
import socket
import struct
import time
import weakref
from collections.abc import Iterator
from typing import NamedTuple

from paceline.exchange.node import cluster_address, this_node

CHALLENGE_BYTES = PROOF_BYTES = 32
_HELLO = struct.Struct(f"<IQQ{CHALLENGE_BYTES}s")
HELLO_BYTES = _HELLO.size + PROOF_BYTES
PATIENCE = 10.0  # seconds for a handshake, which takes milliseconds
_BACKLOG = 4096  # connections that wait to be accepted; more try again, see `_reach`
_MOST_GUESTS = 100  # at a time; the oldest is dismissed first
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
    """Rank of a worker, and the sizes of a push and of an answer [bytes]."""

    worker: int
    push_bytes: int
    pull_bytes: int


def say_hello(secret: bytes, hello: Hello, challenged: bytes, challenging: bytes) -> bytes:
    """Pack a worker's hello and proof. `challenged`: the server's challenge. `challenging`: the
    worker's own challenge to the server.
    """
    content = _HELLO.pack(*hello, challenging)
    return content + _proof(secret, b"worker", challenged, content)


def _hear_hello(secret: bytes, content: bytes, challenging: bytes) -> tuple[Hello, bytes] | None:
    """Return a worker's hello and the server's proof; None if the worker's proof is wrong."""
    hello, proof = content[: _HELLO.size], content[_HELLO.size :]
    if not hmac.compare_digest(proof, _proof(secret, b"worker", challenging, hello)):
        return None
    *fields, challenged = _HELLO.unpack(hello)
    return Hello(*fields), _proof(secret, b"server", challenging, challenged)


def _proof(secret: bytes, *messages: bytes) -> bytes:
    return hmac.digest(secret, b"".join(messages), "sha256")


def connect(
    secret: bytes, address: Address, hello: Hello, *, node: str, timeout_seconds: float
) -> tuple[socket.socket, bool]:
    """Connect a worker on `node` to a server; return the connection, and whether both can share
    memory. Raises OSError if the server cannot be reached, refuses the worker, or does not know the
    secret.
    """
    shared = address.node == node
    connection = _reach(address, shared, timeout_seconds)
    try:
        challenged, challenging = _exactly(connection, CHALLENGE_BYTES), _challenge()
        connection.sendall(say_hello(secret, hello, challenged, challenging))
        proof = _exactly(connection, PROOF_BYTES)
        if not hmac.compare_digest(proof, _proof(secret, b"server", challenged, challenging)):
            raise ConnectionError("a server that does not know the secret of the run")
    except BaseException:
        connection.close()
        raise
    prepare(connection)
    return connection, shared


def _challenge() -> bytes:
    return secrets.token_bytes(CHALLENGE_BYTES)


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


def _exactly(connection: socket.socket, num_bytes: int) -> bytes:
    content = b""
    while len(content) < num_bytes:
        more = connection.recv(num_bytes - len(content))
        if not more:
            raise ConnectionError("the server ended the connection: it expects another worker")
        content += more
    return content


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


class Connected(NamedTuple):
    """Connection to an authenticated worker. `shared`: a Unix socket, so memory can be shared."""

    worker: int
    connection: socket.socket
    shared: bool


class _Guest:
    """Connection of a process that is not authenticated yet. `until`: its deadline [seconds]."""

    def __init__(self, connection: socket.socket, shared: bool, until: float) -> None:
        self.connection, self.shared, self.until = connection, shared, until
        self.challenge = _challenge()
        self.received = b""
        connection.setblocking(False)


class Listener:
    """Sockets of one server, which listen from the start, so that no worker connects too early.
    `expected`: hellos of all workers. `patience`: time limit of a handshake [seconds].
    """

    def __init__(self, secret: bytes, expected: list[Hello], patience: float = PATIENCE) -> None:
        self._secret, self._patience = secret, patience
        self._missing = {hello.worker: hello for hello in expected}
        self._guests: list[_Guest] = []  # by age
        local, host = f"paceline-{secrets.token_hex(8)}", cluster_address()
        self._unix = _listening(socket.AF_UNIX, f"\0{local}")
        self._tcp = _listening(socket.AF_INET6 if ":" in host else socket.AF_INET, (host, 0))
        self.address = Address(this_node(), local, host, self._tcp.getsockname()[1])
        self._selector = selectors.DefaultSelector()
        for listening in (self._unix, self._tcp):
            self._selector.register(listening, selectors.EVENT_READ)

    def meet(self, timeout_seconds: float) -> Iterator[Connected]:
        """Yield each worker as it connects, and close the sockets after the last. Raises
        TimeoutError if workers are missing after `timeout_seconds`.
        """
        deadline = time.monotonic() + timeout_seconds
        try:
            while self._missing:
                if time.monotonic() > deadline:
                    missing = ", ".join(map(str, self._missing))
                    raise TimeoutError(f"no connection from worker {missing}")
                yield from self._accept(deadline)
        finally:
            self.close()

    def close(self) -> None:
        """Stop listening, and close the connections that are not authenticated."""
        for guest in list(self._guests):
            self._dismiss(guest)
        for each in (self._selector, self._unix, self._tcp):
            each.close()

    def _accept(self, deadline: float) -> Iterator[Connected]:
        until = min([deadline, *(guest.until for guest in self._guests[:1])])
        for key, _ in self._selector.select(max(0.0, until - time.monotonic())):
            if key.data is None:
                self._admit(key.fileobj)  # type: ignore[arg-type]
            elif key.data in self._guests and (worker := self._read(key.data)) is not None:
                yield worker
        while self._guests and self._guests[0].until < time.monotonic():
            self._dismiss(self._guests[0])

    def _admit(self, listening: socket.socket) -> None:
        try:
            connection, _ = listening.accept()
        except OSError:  # the other process has closed the connection
            return
        guest = _Guest(connection, listening is self._unix, time.monotonic() + self._patience)
        self._guests.append(guest)
        self._selector.register(connection, selectors.EVENT_READ, guest)
        self._send(guest, guest.challenge)
        if len(self._guests) > _MOST_GUESTS:
            self._dismiss(self._guests[0])

    def _send(self, guest: _Guest, content: bytes) -> bool:
        try:
            return guest.connection.send(content) == len(content)
        except OSError:
            self._dismiss(guest)
            return False

    def _read(self, guest: _Guest) -> Connected | None:
        """Read from a connection; return the worker once its hello is complete and verified."""
        try:
            more = guest.connection.recv(HELLO_BYTES - len(guest.received))
        except OSError:
            more = b""
        guest.received += more
        if more and len(guest.received) < HELLO_BYTES:
            return None
        verified = _hear_hello(self._secret, guest.received, guest.challenge) if more else None
        if verified is None or self._missing.get(verified[0].worker) != verified[0]:
            self._dismiss(guest)
            return None
        hello, proof = verified
        if not self._send(guest, proof):
            return None
        self._forget(guest)
        del self._missing[hello.worker]
        guest.connection.settimeout(self._patience)
        prepare(guest.connection)
        return Connected(hello.worker, guest.connection, guest.shared)

    def _dismiss(self, guest: _Guest) -> None:
        self._forget(guest)
        guest.connection.close()

    def _forget(self, guest: _Guest) -> None:
        self._guests.remove(guest)
        self._selector.unregister(guest.connection)


def _listening(family: int, address: str | tuple[str, int]) -> socket.socket:
    listening = socket.socket(family)
    listening.bind(address)
    listening.listen(_BACKLOG)
    listening.setblocking(False)
    return listening
