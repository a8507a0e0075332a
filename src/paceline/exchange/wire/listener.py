"""Sockets on which a server waits for the workers of its run, and keeps strangers out.

A stranger sees 32 random bytes, and the end of the connection when it has said something wrong or
nothing for a while. When all workers are connected, nobody can connect any more.
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
_MOST_GUESTS = 100  # at a time; the oldest goes first


class Connected(NamedTuple):
    """A connection whose other end has proved itself; `shared`: it is a Unix socket."""

    worker: int
    connection: socket.socket
    shared: bool


class _Guest:
    """A process that has connected and proved nothing yet."""

    def __init__(self, connection: socket.socket, shared: bool, until: float) -> None:
        self.connection, self.shared, self.until = connection, shared, until
        self.challenge = challenge()
        self.heard = b""
        connection.setblocking(False)


class Listener:
    """The sockets of one server, open from the start, so that no worker comes too early.

    `expected`: the hellos of all workers.
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
        """Yield each worker as it comes; then nobody can connect any more.

        Raises TimeoutError where some do not come.
        """
        deadline = time.monotonic() + timeout_seconds
        try:
            while self._missing:
                if time.monotonic() > deadline:
                    missing = ", ".join(map(str, self._missing))
                    raise TimeoutError(f"no connection from worker {missing}")
                yield from self._come(deadline)
        finally:
            self.close()

    def close(self) -> None:
        """Stop listening, and dismiss all who have proved nothing."""
        for guest in list(self._guests):
            self._dismiss(guest)
        self._selector.close()
        self._unix.close()
        self._tcp.close()

    def _come(self, deadline: float) -> Iterator[Connected]:
        until = min([deadline, *(guest.until for guest in self._guests[:1])])
        for key, _ in self._selector.select(max(0.0, until - time.monotonic())):
            if key.data is None:
                self._admit(key.fileobj)  # type: ignore[arg-type]
            elif key.data in self._guests and (worker := self._hear(key.data)) is not None:
                yield worker
        while self._guests and self._guests[0].until < time.monotonic():
            self._dismiss(self._guests[0])

    def _admit(self, listening: socket.socket) -> None:
        try:
            connection, _ = listening.accept()
        except OSError:  # whoever it was is gone again
            return
        until = time.monotonic() + self._patience
        guest = _Guest(connection, listening is self._unix, until)
        self._guests.append(guest)
        self._selector.register(connection, selectors.EVENT_READ, guest)
        self._say(guest, guest.challenge)
        if len(self._guests) > _MOST_GUESTS:
            self._dismiss(self._guests[0])

    def _say(self, guest: _Guest, content: bytes) -> bool:
        try:
            return guest.connection.send(content) == len(content)
        except OSError:
            self._dismiss(guest)
            return False

    def _hear(self, guest: _Guest) -> Connected | None:
        """Read what a guest sends; return a worker once its hello is complete and true."""
        try:
            more = guest.connection.recv(HELLO_BYTES - len(guest.heard))
        except OSError:
            more = b""
        guest.heard += more
        if more and len(guest.heard) < HELLO_BYTES:
            return None
        heard = hear_hello(self._secret, guest.heard, guest.challenge) if more else None
        if heard is None or self._missing.get(heard[0].worker) != heard[0]:
            self._dismiss(guest)
            return None
        return self._welcome(guest, *heard)

    def _welcome(self, guest: _Guest, hello: Hello, proof: bytes) -> Connected | None:
        if not self._say(guest, proof):
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
    listening.listen()
    listening.setblocking(False)
    return listening
