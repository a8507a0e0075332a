"""Connections between the workers and servers of one run, and their messages as bytes: a header of
16 bytes, and the buffers that follow it.

The sockets of a server listen from the start; it stops listening when all its workers have come. A
worker begins with its hello: the token of the run, which only its processes know, and who it is.
Anybody else is disconnected after a wrong hello or a time limit, and hears nothing. The network
itself must be private: the token and all messages travel as they are.
"""

import bisect
import hmac
import itertools
import os
import secrets
import selectors
import socket
import struct
import time
import weakref
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from paceline.exchange.process_group import cluster_address, this_node

_STRUCT = struct.Struct("<qq")  # float32 would count exactly only to 2^24
HEADER_BYTES = _STRUCT.size
_MOST_BUFFERS = 1024  # in a call to a socket (IOV_MAX of Linux)


class Header(NamedTuple):
    """Version of the weights that a worker read or a server sends, and flags.

    To a server: `proceed` is True for a push, False if the worker leaves; no body follows then.
    `keep` asks it to save its state for a checkpoint; no body follows, and it does not answer.

    To a worker: `proceed` grants another step. `stop`: it stops before that step for a checkpoint.
    """

    version: int
    proceed: bool
    keep: bool = False
    stop: bool = False


def pack(header: Header) -> bytes:
    """Return a header as HEADER_BYTES bytes."""
    return _STRUCT.pack(header.version, header.proceed + 2 * header.keep + 4 * header.stop)


def unpack(content: bytes | bytearray) -> Header:
    """Read a header. Raises ValueError for bytes that `pack` does not make."""
    version, flags = _STRUCT.unpack(content)
    if version < 0 or flags not in (0, 1, 2, 5):
        raise ValueError(f"no header: {bytes(content).hex()}")
    return Header(version, bool(flags & 1), flags == 2, flags == 5)


def bytes_of(tensor: Tensor) -> memoryview:
    """Return the memory of a contiguous tensor as bytes, without a copy."""
    return tensor.view(torch.uint8).numpy().data


class Pieces:
    """Buffers that are sent or filled one after another, in as many calls as a socket needs.
    `done`: bytes sent or received so far.
    """

    def __init__(self, *buffers: memoryview) -> None:
        self._buffers = buffers
        self._ends = list(itertools.accumulate(map(len, buffers)))
        self._num_bytes = self._ends[-1] if buffers else 0
        self.done = 0

    def begin_again(self) -> "Pieces":
        """Prepare to send or to fill the same buffers once more; return itself."""
        self.done = 0
        return self

    def replace(self, *buffers: memoryview) -> None:
        """Take the rest from other buffers of equal sizes and content."""
        self._buffers = buffers

    @property
    def complete(self) -> bool:
        return self.done == self._num_bytes

    @property
    def has_first(self) -> bool:
        """True if the first buffer is complete."""
        return self.done >= self._ends[0]

    def send(self, connection: socket.socket) -> None:
        """Send as much as the socket accepts now, or all if it blocks. Raises OSError."""
        while not self.complete:
            try:
                self.done += connection.sendmsg(self._rest())
            except BlockingIOError:
                return

    def receive(self, connection: socket.socket) -> None:
        """Read once from the socket. Raises OSError, and EOFError at the end of the connection."""
        more = connection.recvmsg_into(self._rest())[0]
        if more == 0:
            raise EOFError
        self.done += more

    def _rest(self) -> list[memoryview]:
        """Return the remaining buffers, at most as many as one call accepts."""
        place = bisect.bisect_right(self._ends, self.done)
        buffer = self._buffers[place]
        first = buffer[self.done - self._ends[place] + len(buffer) :]
        return [first, *self._buffers[place + 1 : place + _MOST_BUFFERS]]


_HELLO = struct.Struct("<IQQ")
_UCRED = struct.Struct("iII")  # process, user, group, unix(7)
PATIENCE = 10.0  # seconds for a whole hello, which takes milliseconds
_MOST_GUESTS = 100  # of a socket at a time; the oldest is dismissed first
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
    """Connection to a worker, or to a server. `shared`: True inside a node, where it is a Unix
    socket over which memory can be shared.
    """

    worker: int
    connection: socket.socket
    shared: bool


def connect(
    token: bytes, address: Address, hello: Hello, *, node: str, timeout_seconds: float
) -> Connected:
    """Connect a worker on `node` to the server at `address`, which ends the connection if it does
    not expect this worker. Raises OSError if the server cannot be reached.
    """
    shared = address.node == node
    connection = _reach(address, shared, timeout_seconds)
    try:
        if not _is_of_this_user(connection):
            raise ConnectionError("it belongs to another user")
        connection.sendall(token + hello.pack())
    except BaseException:
        connection.close()
        raise
    prepare(connection)
    return Connected(hello.worker, connection, shared)


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


class _Guest:
    """Connection of a process that has not said who it is. `until`: its deadline [seconds]."""

    def __init__(self, connection: socket.socket, listening: socket.socket, until: float) -> None:
        self.connection, self.listening, self.until = connection, listening, until
        self.received = b""


class Listener:
    """Sockets of a server, which listen from the start, so that no worker connects too early.
    `token`: what the hellos of all workers begin with. `expected`: the hello of each worker.
    `patience`: time limit of a hello [seconds].
    """

    def __init__(self, token: bytes, expected: Sequence[Hello], patience: float = PATIENCE) -> None:
        self._token, self._patience = token, patience
        self._missing = {hello.pack(): hello for hello in expected}
        local, host = f"paceline-{secrets.token_hex(8)}", cluster_address()
        self._unix = _listening(socket.AF_UNIX, f"\0{local}")
        tcp = _listening(socket.AF_INET6 if ":" in host else socket.AF_INET, (host, 0))
        self.address = Address(this_node(), local, host, tcp.getsockname()[1])
        self._listening = self._unix, tcp
        self._guests: list[_Guest] = []  # by age
        self._selector = selectors.DefaultSelector()
        for each in self._listening:
            each.setblocking(False)
            self._selector.register(each, selectors.EVENT_READ)

    def meet(self, timeout_seconds: float) -> Iterator[Connected]:
        """Yield each worker as it connects, and close the sockets after the last. Raises
        TimeoutError if workers are missing after `timeout_seconds`.
        """
        deadline = time.monotonic() + timeout_seconds
        try:
            while self._missing:
                now = time.monotonic()
                if now > deadline:
                    missing = ", ".join(str(hello.worker) for hello in self._missing.values())
                    raise TimeoutError(f"no connection from worker {missing}")
                until = min([deadline, *(guest.until for guest in self._guests[:1])])
                for key, _ in self._selector.select(max(0.0, until - now)):
                    if key.data is None:
                        self._admit(key.fileobj)  # type: ignore[arg-type]
                    elif key.data in self._guests and (hello := self._read(key.data)) is not None:
                        connection = key.data.connection
                        connection.settimeout(self._patience)
                        prepare(connection)
                        shared = key.data.listening is self._unix
                        yield Connected(hello.worker, connection, shared)
                while self._guests and self._guests[0].until < time.monotonic():
                    self._dismiss(self._guests[0])
        finally:
            self.close()

    def close(self) -> None:
        """Stop listening, and close the connections of who has not said a hello."""
        for guest in list(self._guests):
            self._dismiss(guest)
        for each in (self._selector, *self._listening):
            each.close()

    def _admit(self, listening: socket.socket) -> None:
        try:
            connection, _ = listening.accept()
        except OSError:  # the other process has closed the connection
            return
        if not _is_of_this_user(connection):
            connection.close()
            return
        connection.setblocking(False)
        guest = _Guest(connection, listening, time.monotonic() + self._patience)
        self._guests.append(guest)
        self._selector.register(connection, selectors.EVENT_READ, guest)
        others = [each for each in self._guests if each.listening is listening]
        if len(others) > _MOST_GUESTS:
            self._dismiss(others[0])

    def _read(self, guest: _Guest) -> Hello | None:
        """Read from a connection; return a missing worker's hello once it is complete."""
        wanted = len(self._token) + _HELLO.size
        try:
            more = guest.connection.recv(wanted - len(guest.received))
        except OSError:
            more = b""
        guest.received += more
        if more and len(guest.received) < wanted:
            return None
        token, said = guest.received[: len(self._token)], guest.received[len(self._token) :]
        hello = None
        if hmac.compare_digest(token, self._token):
            hello = self._missing.pop(said, None)
        if hello is None:
            self._dismiss(guest)
        else:
            self._forget(guest)
        return hello

    def _dismiss(self, guest: _Guest) -> None:
        self._forget(guest)
        guest.connection.close()

    def _forget(self, guest: _Guest) -> None:
        self._guests.remove(guest)
        self._selector.unregister(guest.connection)


def _is_of_this_user(connection: socket.socket) -> bool:
    """Return True unless it is a Unix socket whose other end is a process of another user."""
    if connection.family != socket.AF_UNIX:
        return True
    credentials = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _UCRED.size)
    return _UCRED.unpack(credentials)[1] == os.geteuid()


def _listening(family: int, address: str | tuple[str, int]) -> socket.socket:
    listening = socket.socket(family)
    listening.bind(address)
    listening.listen(_BACKLOG)
    return listening
