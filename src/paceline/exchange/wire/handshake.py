"""Handshake by which two processes prove to each other that they know the same secret.

    listener -> caller:   a random number (challenge)
    caller -> listener:   its message, another challenge, its proof
    listener -> caller:   its proof

A proof is the HMAC-SHA256 of the sender's role, the purpose of the connection, both challenges and
the message, with the secret as its key. So a proof is of no use in the other role, for another
purpose, or in another handshake. Both ends derive a fresh key for each direction from the same
values, and with it authenticate everything that follows, so that who only passes a handshake on
between two others can neither read nor change nor add anything. Who does not know the secret
receives only a random number, and is disconnected after a wrong message or a time limit.
"""

import hmac
import os
import secrets
import selectors
import socket
import struct
import time
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

CHALLENGE_BYTES = PROOF_BYTES = 32
TAG_BYTES = 16
PATIENCE = 10.0  # seconds for a whole handshake, which takes milliseconds
_NONCE_BYTES = 12
_MOST_GUESTS = 100  # of a socket at a time; the oldest is dismissed first
_LENGTH = struct.Struct("<Q")
_UCRED = struct.Struct("iII")  # process, user, group, unix(7)


class Seal:
    """Authentication of the messages of one direction by AES-256-GCM, with a count in each, so that
    a message that was changed, added, left out, repeated or exchanged does not pass.
    """

    def __init__(self, key: bytes) -> None:
        self._cipher, self._count = AESGCM(key), 0

    def tag(self, content: memoryview) -> bytes:
        """Return the tag of the next message [TAG_BYTES], which is sent as it is."""
        return self._cipher.encrypt(self._nonce(), b"", content)

    def check(self, content: memoryview, tag: memoryview) -> None:
        """Raise ConnectionError unless this is the next message of the other end."""
        self.decrypt(bytes(tag), content)

    def encrypt(self, content: bytes, beside: bytes) -> bytes:
        """Return the next message, encrypted, and its tag, which also covers `beside`."""
        return self._cipher.encrypt(self._nonce(), content, beside)

    def decrypt(self, content: bytes | bytearray, beside: bytes | memoryview) -> bytes:
        """Return the next message of the other end. Raises ConnectionError if it is not."""
        try:
            return self._cipher.decrypt(self._nonce(), content, beside)
        except InvalidTag:
            raise ConnectionError("a message was changed or added on its way") from None

    def _nonce(self) -> bytes:
        """Return a number that no other message of this direction has."""
        self._count += 1
        return self._count.to_bytes(_NONCE_BYTES, "little")


class Seals(NamedTuple):
    """Seals of what an end of a connection sends, and of what it receives."""

    sent: Seal
    received: Seal


class _Transcript:
    """Content of a handshake under `secret`, which both ends know when the caller has spoken."""

    def __init__(self, secret: bytes, *parts: bytes) -> None:
        self._secret = secret
        self._parts = b"".join(_LENGTH.pack(len(part)) + part for part in parts)

    def proof(self, role: str) -> bytes:
        return self._digest(f"the {role} knows the secret")

    def seals(self, role: str) -> Seals:
        """Return the seals of the end with this role, "caller" or "listener"."""
        caller, listener = (
            Seal(self._digest(f"key of what the {each} sends")) for each in ("caller", "listener")
        )
        return Seals(caller, listener) if role == "caller" else Seals(listener, caller)

    def _digest(self, what: str) -> bytes:
        return hmac.digest(self._secret, what.encode() + b"\0" + self._parts, "sha256")


def derive(secret: bytes, purpose: str) -> bytes:
    """Return another secret [32 bytes], from which nobody finds `secret`."""
    return hmac.digest(secret, purpose.encode(), "sha256")


def introduce(
    secret: bytes, purpose: str, message: bytes, challenged: bytes, challenging: bytes
) -> tuple[bytes, bytes, Seals]:
    """Return what a caller sends, the proof that it expects, and its seals. `challenged`: the
    listener's challenge. `challenging`: the caller's own.
    """
    transcript = _Transcript(secret, purpose.encode(), challenged, challenging, message)
    said = message + challenging + transcript.proof("caller")
    return said, transcript.proof("listener"), transcript.seals("caller")


def call(
    connection: socket.socket, secret: bytes, purpose: str, message: bytes, until: float
) -> Seals:
    """Carry out the caller's part over a new connection. `until`: limit on the monotonic clock for
    all of it [seconds]. Raises RefusedError if the listener ends the connection when it has the
    proof, WrongSecretError if it does not know the secret, and OSError for anything else.
    """
    challenged = _exactly(connection, CHALLENGE_BYTES, until)
    said, expected, seals = introduce(
        secret, purpose, message, challenged, secrets.token_bytes(CHALLENGE_BYTES)
    )
    try:
        connection.sendall(said)
        proof = _exactly(connection, PROOF_BYTES, until)
    except (ConnectionError, EOFError):
        raise RefusedError("it ended the connection: it does not expect this process") from None
    if not hmac.compare_digest(proof, expected):
        raise WrongSecretError("what answers does not know the secret")
    return seals


class RefusedError(ConnectionError):
    """Error of a caller whose proof or message the listener did not accept."""


class WrongSecretError(ConnectionError):
    """Error of a caller that meets something that does not know the secret."""


def _exactly(connection: socket.socket, num_bytes: int, until: float) -> bytes:
    content = b""
    while len(content) < num_bytes:
        connection.settimeout(max(1e-3, until - time.monotonic()))
        more = connection.recv(num_bytes - len(content))
        if not more:
            raise ConnectionError("it ended the connection")
        content += more
    return content


class Caller(NamedTuple):
    """A process that has proved that it knows the secret. `connection` does not block.
    `listening`: socket at which it called.
    """

    connection: socket.socket
    listening: socket.socket
    message: bytes
    seals: Seals


class _Guest:
    """Connection of a process that has proved nothing yet. `until`: its deadline [seconds]."""

    def __init__(self, connection: socket.socket, listening: socket.socket, until: float) -> None:
        self.connection, self.listening, self.until = connection, listening, until
        self.challenge = secrets.token_bytes(CHALLENGE_BYTES)
        self.received = b""
        connection.setblocking(False)


class Reception:
    """Handshakes at the same time with all that call at some `listening` sockets, which it owns.

    `message_bytes`: length of a caller's message. `expects`: whether a caller with this message may
    come in. `patience`: time limit of a whole handshake [seconds].
    """

    def __init__(
        self,
        listening: Sequence[socket.socket],
        secret: bytes,
        purpose: str,
        message_bytes: int,
        expects: Callable[[bytes], bool],
        patience: float = PATIENCE,
    ) -> None:
        self._secret, self._purpose, self._patience = secret, purpose, patience
        self._message_bytes, self._expects = message_bytes, expects
        self._hello_bytes = message_bytes + CHALLENGE_BYTES + PROOF_BYTES
        self._guests: list[_Guest] = []  # by age
        self._listening = listening
        self._selector = selectors.DefaultSelector()
        for each in listening:
            each.setblocking(False)
            self._selector.register(each, selectors.EVENT_READ)

    def fileno(self) -> int:
        """Return a descriptor that is ready to be read when `greet` has something to do."""
        return self._selector.fileno()  # type: ignore[attr-defined]  # of epoll

    def greet(self, seconds: float) -> Iterator[Caller]:
        """Wait at most so long for anything to arrive; yield the callers that then have proved that
        they know the secret.
        """
        until = time.monotonic() + seconds
        until = min([until, *(guest.until for guest in self._guests[:1])])
        for key, _ in self._selector.select(max(0.0, until - time.monotonic())):
            if key.data is None:
                self._admit(key.fileobj)  # type: ignore[arg-type]
            elif key.data in self._guests and (caller := self._read(key.data)) is not None:
                yield caller
        while self._guests and self._guests[0].until < time.monotonic():
            self._dismiss(self._guests[0])

    def close(self) -> None:
        """Stop listening, and close the connections that have proved nothing."""
        for guest in list(self._guests):
            self._dismiss(guest)
        for each in (self._selector, *self._listening):
            each.close()

    def _admit(self, listening: socket.socket) -> None:
        try:
            connection, _ = listening.accept()
        except OSError:  # the other process has closed the connection
            return
        if not is_of_this_user(connection):
            connection.close()
            return
        guest = _Guest(connection, listening, time.monotonic() + self._patience)
        self._guests.append(guest)
        self._selector.register(connection, selectors.EVENT_READ, guest)
        self._send(guest, guest.challenge)
        others = [each for each in self._guests if each.listening is listening]
        if len(others) > _MOST_GUESTS:
            self._dismiss(others[0])

    def _send(self, guest: _Guest, content: bytes) -> bool:
        try:
            return guest.connection.send(content) == len(content)
        except OSError:
            self._dismiss(guest)
            return False

    def _read(self, guest: _Guest) -> Caller | None:
        """Read from a connection; return the caller once its proof is complete and verified."""
        try:
            more = guest.connection.recv(self._hello_bytes - len(guest.received))
        except OSError:
            more = b""
        guest.received += more
        if more and len(guest.received) < self._hello_bytes:
            return None
        caller = self._verified(guest) if more else None
        if caller is None:
            self._dismiss(guest)
        return caller

    def _verified(self, guest: _Guest) -> Caller | None:
        message, rest = guest.received[: self._message_bytes], guest.received[self._message_bytes :]
        parts = self._purpose.encode(), guest.challenge, rest[:CHALLENGE_BYTES], message
        transcript = _Transcript(self._secret, *parts)
        if not hmac.compare_digest(rest[CHALLENGE_BYTES:], transcript.proof("caller")):
            return None
        if not self._expects(message) or not self._send(guest, transcript.proof("listener")):
            return None
        self._forget(guest)
        seals = transcript.seals("listener")
        return Caller(guest.connection, guest.listening, message, seals)

    def _dismiss(self, guest: _Guest) -> None:
        if guest in self._guests:
            self._forget(guest)
            guest.connection.close()

    def _forget(self, guest: _Guest) -> None:
        self._guests.remove(guest)
        self._selector.unregister(guest.connection)


def is_of_this_user(connection: socket.socket) -> bool:
    """Return True unless it is a Unix socket whose other end is a process of another user."""
    if connection.family != socket.AF_UNIX:
        return True
    credentials = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _UCRED.size)
    return _UCRED.unpack(credentials)[1] == os.geteuid()
