"""Handshake in which both ends of a new connection prove that they know the run's secret.

    server -> worker:   a random number (challenge)
    worker -> server:   hello: its rank, the sizes of bodies, another challenge; its proof
    server -> worker:   its proof

A proof is the HMAC-SHA256 of the messages before it, with the secret as its key.
"""

import hmac
import secrets
import struct
from typing import NamedTuple

CHALLENGE_BYTES = PROOF_BYTES = 32
_HELLO = struct.Struct(f"<IQQ{CHALLENGE_BYTES}s")
HELLO_BYTES = _HELLO.size + PROOF_BYTES


class Hello(NamedTuple):
    """Rank of a worker, and the sizes of the bodies of a push and of an answer [bytes]."""

    worker: int
    push_bytes: int
    pull_bytes: int


def challenge() -> bytes:
    """Draw a number that the other end must use in its proof."""
    return secrets.token_bytes(CHALLENGE_BYTES)


def say_hello(secret: bytes, hello: Hello, challenged: bytes, challenging: bytes) -> bytes:
    """Pack a worker's hello and proof.

    `challenged`: challenge from the server. `challenging`: challenge to the server.
    """
    content = _HELLO.pack(*hello, challenging)
    return content + _proof(secret, b"worker", challenged, content)


def hear_hello(secret: bytes, content: bytes, challenging: bytes) -> tuple[Hello, bytes] | None:
    """Check a worker's proof; return its hello and the server's proof, or None if it is wrong.

    `challenging`: challenge from this server.
    """
    hello, proof = content[: _HELLO.size], content[_HELLO.size :]
    if not hmac.compare_digest(proof, _proof(secret, b"worker", challenging, hello)):
        return None
    *fields, challenged = _HELLO.unpack(hello)
    return Hello(*fields), server_proof(secret, challenged, challenging)


def server_proof(secret: bytes, challenged: bytes, challenging: bytes) -> bytes:
    """Return a server's proof to a worker.

    `challenged`: challenge from the worker. `challenging`: challenge from the server.
    """
    return _proof(secret, b"server", challenging, challenged)


def _proof(secret: bytes, *messages: bytes) -> bytes:
    return hmac.digest(secret, b"".join(messages), "sha256")
