"""Connection between the head of a run and the agent of a node: key, handshake and messages.

The head is the process of `paceline train` or `paceline sweep`. Both ends prove in a handshake that
they know the same key (exchange/wire/handshake.py). Messages are JSON, encrypted and authenticated.
"""

import os
import re
import secrets
import socket
import struct
import threading
import time
from multiprocessing import connection
from pathlib import Path
from typing import NamedTuple, TypeAlias

from paceline.cluster.child import Alive, Raised, Returned, Tolerated
from paceline.cluster.plain_form import from_json, to_json
from paceline.errors import SettingError
from paceline.exchange.wire.connection import prepare
from paceline.exchange.wire.handshake import (
    TAG_BYTES,
    Reception,
    RefusedError,
    Seals,
    WrongSecretError,
    call,
    derive,
)

KEY, HEAD = "PACELINE_AGENT_KEY", "PACELINE_HEAD"  # environment variables, see `agent_key`, `head`
KEY_FILE = Path("runs/.agent_key")
_PURPOSE = "agent of a run"
_HEX = re.compile(r"[0-9a-f]{32,}", re.IGNORECASE)
_HANDSHAKE_SECONDS = 5
_REFUSED_SECONDS = 3  # for which an agent that was refused tries again: the head may be crowded
_SILENCE_SECONDS = 25  # after which a node whose machine or link has failed is gone
_AGAIN_SECONDS = 0.2
_LENGTH = struct.Struct("<Q")
_MOST_BYTES = 2**30  # of a message


class Ready(NamedTuple):
    """First message of an agent, once its processes start fast: name of its host, and the address
    at which others reach it.
    """

    host: str
    address: str


class Order(NamedTuple):
    """Processes of a point that an agent is to start, by rank. `environment`: variables of all of
    them. `run`: number of the run, from which all nodes derive its secret. `code`: digest of the
    head's source. `task`: the task as JSON, which other code may not understand; its folder is
    relative to the project.
    """

    ranks: list[int]
    environment: dict[str, str]
    run: str
    code: str
    task: bytes


class Kill(NamedTuple):
    """Order to kill one of the processes."""

    rank: int


class End(NamedTuple):
    """The head's last word of a point: the agent ends the processes that still run."""


class Ended(NamedTuple):
    """End of a process, with or without a report."""

    exit_code: int | None


class Reported(NamedTuple):
    """Report of the process of this rank."""

    rank: int
    report: Returned | Raised | Tolerated | Alive | Ended


class Over(NamedTuple):
    """An agent's last word of a point."""


Message: TypeAlias = Ready | Order | Kill | End | Reported | Over


class Channel:
    """Connection between head and agent after their handshake."""

    def __init__(self, peer: socket.socket, seals: Seals) -> None:
        self._peer, self._seals, self._sending = peer, seals, threading.Lock()
        prepare(peer)
        peer.setblocking(True)
        peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, 1000 * _SILENCE_SECONDS)

    def fileno(self) -> int:
        return self._peer.fileno()

    def poll(self) -> bool:
        """Return True if `receive` would not wait for the beginning of a message."""
        return bool(connection.wait([self._peer], 0))

    def send(self, message: Message) -> None:
        """Send a message. Raises OSError, and TypeError for one that is not plain, or too long."""
        content = to_json(message)
        if len(content) > _MOST_BYTES:
            raise TypeError(f"{len(content):,} bytes do not travel between machines")
        length = _LENGTH.pack(len(content) + TAG_BYTES)
        with self._sending:
            self._peer.sendall(length + self._seals.sent.encrypt(content, length))

    def receive(self) -> Message:
        """Wait for a message. Raises EOFError at the end of the connection, OSError if it fails,
        and ConnectionError for anything that the other end has not sent.
        """
        length = self._exactly(_LENGTH.size, begun=False)
        (num_bytes,) = _LENGTH.unpack(length)
        if not TAG_BYTES <= num_bytes <= _MOST_BYTES + TAG_BYTES:
            raise ConnectionError("it broke the protocol")
        sealed = self._exactly(num_bytes, begun=True)
        try:
            message = from_json(self._seals.received.decrypt(sealed, bytes(length)))
        except ValueError as error:
            raise ConnectionError(f"it broke the protocol: {error}") from None
        if not isinstance(message, Message):
            raise ConnectionError(f"it broke the protocol: {type(message).__name__} is no message")
        return message

    def close(self) -> None:
        self._peer.close()

    def _exactly(self, num_bytes: int, *, begun: bool) -> bytearray:
        """Receive so many bytes, the first of which may come late unless a message has `begun`."""
        content = bytearray()
        while len(content) < num_bytes:
            if (content or begun) and not connection.wait([self._peer], _SILENCE_SECONDS):
                raise ConnectionError(f"silent for {_SILENCE_SECONDS} s in a message")
            more = self._peer.recv(min(num_bytes - len(content), 2**20))
            if not more:
                raise EOFError
            content += more
        return content


def agent_key() -> bytes:
    """Return the key that the head and all agents share: PACELINE_AGENT_KEY if it is set, else the
    content of the file KEY_FILE in the project's folder, which whoever comes first writes. Raises
    SettingError for a key that others may know or guess.
    """
    key, where = os.environ.get(KEY), KEY
    if key is None:
        key, where = _key_in_file(), str(KEY_FILE)
    if not _HEX.fullmatch(key) or len(key) % 2 or len(set(bytes.fromhex(key))) < len(key) // 4:
        message = "it is no random key; the output of openssl rand -hex 32 is needed, the same for "
        raise SettingError(where, f"{message}the head and all agents")
    return bytes.fromhex(key)


def run_secret(key: bytes, run: str) -> str:
    """Return the secret of the run with this number in hexadecimal digits, see `Order`."""
    return derive(key, f"secret of the run {run}").hex()


def _key_in_file() -> str:
    try:
        if not KEY_FILE.exists():
            KEY_FILE.parent.mkdir(exist_ok=True)
            _write_key()
        descriptor = os.open(KEY_FILE, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
        with os.fdopen(descriptor) as file:
            about = os.fstat(descriptor)
            if about.st_uid != os.geteuid() or about.st_mode & 0o077:
                message = (
                    f"it must belong to this user, and be readable by nobody else; or set {KEY}"
                )
                raise SettingError(str(KEY_FILE), message)
            return file.read(1000).strip()
    except (OSError, ValueError) as error:
        raise SettingError(str(KEY_FILE), f"{error}; or set {KEY}") from None


def _write_key() -> None:
    """Write a new key under another name first, so that nobody reads half of it."""
    draft = KEY_FILE.with_name(f"{KEY_FILE.name}.{secrets.token_hex(8)}")
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with os.fdopen(descriptor, "w") as file:
            file.write(secrets.token_hex(32) + "\n")
        os.link(draft, KEY_FILE)
    except FileExistsError:  # another agent, or the head, was first
        pass
    finally:
        draft.unlink()


def head(given: str | None = None) -> tuple[str, int]:
    """Parse HOST:PORT, the address on which the head listens, as given or from PACELINE_HEAD.
    Raises SettingError if there is neither, or if it is not valid.
    """
    text = given or os.environ.get(HEAD, "")
    host, _, port = text.rpartition(":")
    if not host or not text.isascii() or not port.isdigit() or not 0 < int(port) < 2**16:
        message = f"HOST:PORT is needed, the address on which the head listens, not {text!r}"
        raise SettingError(HEAD, message)
    return host, int(port)


def reception(listening: socket.socket, key: bytes) -> Reception:
    """Return the head's end of handshakes with agents."""
    return Reception([listening], key, _PURPOSE, 0, lambda message: True, _HANDSHAKE_SECONDS)


def connect(head: tuple[str, int], key: bytes, patience_seconds: float) -> Channel:
    """Connect an agent with the head, waiting up to `patience_seconds`. Raises SettingError if the
    head does not come, or does not know the key.
    """
    where, began = f"{head[0]}:{head[1]}", time.monotonic()
    until, refused = began + patience_seconds, None
    while True:
        try:
            return _connect(head, key)
        except WrongSecretError:
            message = f"what answers at {where} is no head, or one that has another key"
            raise SettingError(KEY, message) from None
        except RefusedError:
            refused = refused or time.monotonic()
            if time.monotonic() - refused > _REFUSED_SECONDS:
                raise SettingError(KEY, f"the head at {where} has another key") from None
        except (OSError, UnicodeError) as error:  # the latter for a name that is none
            refused = None
            if time.monotonic() > until:
                message = f"nothing answers at {where} for {patience_seconds:g} s: {error}"
                raise SettingError(HEAD, message) from None
        time.sleep(_AGAIN_SECONDS)


def _connect(head: tuple[str, int], key: bytes) -> Channel:
    until = time.monotonic() + _HANDSHAKE_SECONDS
    peer = socket.create_connection(head, _HANDSHAKE_SECONDS)
    try:
        return Channel(peer, call(peer, key, _PURPOSE, b"", until))
    except BaseException:
        peer.close()
        raise
