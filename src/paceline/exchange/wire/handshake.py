"""How the two ends of a new connection prove to each other that they know the secret of the run.

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
    """A worker, and how many bytes the body of its pushes and of their answers has."""

    worker: int
    push_bytes: int
    pull_bytes: int


def challenge() -> bytes:
    return secrets.token_bytes(CHALLENGE_BYTES)


def say_hello(secret: bytes, hello: Hello, challenged: bytes, challenging: bytes) -> bytes:
    """`challenged`: what the server sent; `challenging`: what it is to prove its knowledge on."""
    said = _HELLO.pack(*hello, challenging)
    return said + _proof(secret, b"worker", challenged, said)


def hear_hello(secret: bytes, content: bytes, challenging: bytes) -> tuple[Hello, bytes] | None:
    """What the worker says, and the server's proof in return; None where it does not know the
    secret. `challenging`: what this server sent.
    """
    said, proof = content[: _HELLO.size], content[_HELLO.size :]
    if not hmac.compare_digest(proof, _proof(secret, b"worker", challenging, said)):
        return None
    *fields, challenged = _HELLO.unpack(said)
    return Hello(*fields), server_proof(secret, challenged, challenging)


def server_proof(secret: bytes, challenged: bytes, challenging: bytes) -> bytes:
    """`challenged`: what the worker sent; `challenging`: what the server sent."""
    return _proof(secret, b"server", challenging, challenged)


def _proof(secret: bytes, *said: bytes) -> bytes:
    return hmac.digest(secret, b"".join(said), "sha256")
