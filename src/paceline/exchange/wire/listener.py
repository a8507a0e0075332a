"""Sockets on which a server accepts the workers of its run, and no other processes.

Any other process receives 32 random bytes; its connection ends after a wrong message or a time
limit. When all workers are connected, the sockets are closed.
"""

import secrets
import selectors
import socket
import time
from collections.abc import Iterator
from typing import NamedTuple

from paceline.exchange.node import cluster_address, this_node
from paceline.exchange.wire.connection import Address, prepare
from paceline.exchange.wire.handshake import HELLO_BYTES, Hello, challenge, hear_hello

PATIENCE = 10.0  # seconds for a handshake, which takes milliseconds
_BACKLOG = 4096  # connections that wait to be accepted; more try again, see `connect`
_MOST_GUESTS = 100  # at a time; the oldest goes first


class Connected(NamedTuple):
    """Connection to an authenticated worker. `shared`: True for a Unix socket."""

    worker: int
    connection: socket.socket
    shared: bool


class _Guest:
    """Connection of a process that is not authenticated yet. `until`: deadline [seconds]."""

    def __init__(self, connection: socket.socket, shared: bool, until: float) -> None:
        self.connection, self.shared, self.until = connection, shared, until
        self.challenge = challenge()
        self.received = b""
        connection.setblocking(False)


class Listener:
    """Sockets of one server, open from the start, so that no worker connects too early.

    `expected`: hellos of all workers. `patience`: time limit of a handshake [seconds].
    """

    def __init__(self, secret: bytes, expected: list[Hello], patience: float = PATIENCE) -> None:
        self._secret, self._patience = secret, patience
        self._missing = {hello.worker: hello for hello in expected}
        self._guests: list[_Guest] = []  # by age
        local = f"paceline-{secrets.token_hex(8)}"
        host = cluster_address()
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self._unix = _listening(socket.AF_UNIX, f"\0{local}")
        self._tcp = _listening(family, (host, 0))
        self.address = Address(this_node(), local, host, self._tcp.getsockname()[1])
        self._selector = selectors.DefaultSelector()
        for listening in (self._unix, self._tcp):
            self._selector.register(listening, selectors.EVENT_READ)

    def meet(self, timeout_seconds: float) -> Iterator[Connected]:
        """Yield each worker as it connects, and close the sockets after the last.

        Raises TimeoutError if workers are missing after `timeout_seconds`.
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
        """Stop listening, and close connections that are not authenticated."""
        for guest in list(self._guests):
            self._dismiss(guest)
        self._selector.close()
        self._unix.close()
        self._tcp.close()

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
        until = time.monotonic() + self._patience
        guest = _Guest(connection, listening is self._unix, until)
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
        """Read from a connection; return a worker once its hello is complete and verified."""
        try:
            more = guest.connection.recv(HELLO_BYTES - len(guest.received))
        except OSError:
            more = b""
        guest.received += more
        if more and len(guest.received) < HELLO_BYTES:
            return None
        verified = hear_hello(self._secret, guest.received, guest.challenge) if more else None
        if verified is None or self._missing.get(verified[0].worker) != verified[0]:
            self._dismiss(guest)
            return None
        return self._welcome(guest, *verified)

    def _welcome(self, guest: _Guest, hello: Hello, proof: bytes) -> Connected | None:
        if not self._send(guest, proof):
            return None
        self._guests.remove(guest)
        self._selector.unregister(guest.connection)
        del self._missing[hello.worker]
        guest.connection.settimeout(self._patience)
        prepare(guest.connection)
        return Connected(hello.worker, guest.connection, guest.shared)

    def _dismiss(self, guest: _Guest) -> None:
        self._guests.remove(guest)
        self._selector.unregister(guest.connection)
        guest.connection.close()


def _listening(family: int, address: str | tuple[str, int]) -> socket.socket:
    listening = socket.socket(family)
    listening.bind(address)
    listening.listen(_BACKLOG)
    listening.setblocking(False)
    return listening
