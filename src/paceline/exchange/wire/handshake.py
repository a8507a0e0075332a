"""Proof of the two ends of a new connection that they know the secret of the run.

    server -> worker:   a number of its own (challenge)
    worker -> server:   hello: who it is, the sizes of bodies, a challenge of its own; its proof
    server -> worker:   its proof

A proof is the HMAC-SHA256 of all that was said before, with the secret as its key.
"""

import hmac
import secrets
import struct
from typing import NamedTuple

CHALLENGE_BYTES = PROOF_BYTES = 32
_HELLO = struct.Struct(f"<IQQ{CHALLENGE_BYTES}s")
HELLO_BYTES = _HELLO.size + PROOF_BYTES


class Hello(NamedTuple):
    """The name of a worker, and the bytes in the body of a push and of an answer."""

    worker: int
    push_bytes: int
    pull_bytes: int


def challenge() -> bytes:
    """Draw a number that the other end must use in its proof."""
    return secrets.token_bytes(CHALLENGE_BYTES)


def say_hello(secret: bytes, hello: Hello, challenged: bytes, challenging: bytes) -> bytes:
    """Pack a worker's hello and proof.

    `challenged`: what the server sent; `challenging`: what the server must use in its proof.
    """
    said = _HELLO.pack(*hello, challenging)
    return said + _proof(secret, b"worker", challenged, said)


def hear_hello(secret: bytes, content: bytes, challenging: bytes) -> tuple[Hello, bytes] | None:
    """Check a worker's proof; return its hello and the server's proof, or None for a stranger.

    `challenging`: what this server sent.
    """
    said, proof = content[: _HELLO.size], content[_HELLO.size :]
    if not hmac.compare_digest(proof, _proof(secret, b"worker", challenging, said)):
        return None
    *fields, challenged = _HELLO.unpack(said)
    return Hello(*fields), server_proof(secret, challenged, challenging)


def server_proof(secret: bytes, challenged: bytes, challenging: bytes) -> bytes:
    """Prove to a worker that this server knows the secret.

    `challenged`: what the worker sent; `challenging`: what the server sent.
    """
    return _proof(secret, b"server", challenging, challenged)


def _proof(secret: bytes, *said: bytes) -> bytes:
    return hmac.digest(secret, b"".join(said), "sha256")
