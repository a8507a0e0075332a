"""What connects to a server without being a worker of its run."""

import random
import socket
import struct

from paceline.exchange.wire.connection import Hello, purpose
from paceline.exchange.wire.handshake import CHALLENGE_BYTES, PROOF_BYTES, introduce

LIMIT = 5  # seconds that anybody waits for an answer
SERVER = 3  # rank of the server that the tests call
HELLO_BYTES = len(Hello(0, 8, 8).pack()) + CHALLENGE_BYTES + PROOF_BYTES


def say_hello(secret, hello, challenged, challenging, *, server=SERVER):
    """What a worker sends to the server of this rank."""
    return introduce(secret, purpose(server), hello.pack(), challenged, challenging)[0]


def call(address):
    """A connection, and the challenge that everybody gets."""
    caller = socket.create_connection((address.host, address.port), LIMIT)
    content = b""
    while len(content) < CHALLENGE_BYTES:
        content += caller.recv(CHALLENGE_BYTES - len(content))
    return caller, content


def send_and_listen(address, content, *, half=False):
    """Everything that comes back before the server ends the connection. `half`: no more follows."""
    caller, _ = call(address)
    heard = b""
    with caller:
        try:
            caller.sendall(content)
            if half:
                caller.shutdown(socket.SHUT_WR)
            while more := caller.recv(4096):
                heard += more
        except ConnectionError:  # it ended the connection before it had read everything
            pass
    return heard


def malformed(count, seed, known):
    """Messages of strangers: noise of many lengths, other protocols, and hellos that are almost
    true. `known`: the hello of a worker that is expected.
    """
    dice = random.Random(seed)
    others = [
        b"GET / HTTP/1.1\r\nHost: server\r\n\r\n" + b" " * HELLO_BYTES,
        b"\x16\x03\x01\x02\x00\x01" + bytes(HELLO_BYTES),
        struct.pack("<q", 2**62) * 40,
        say_hello(b"another secret", known, bytes(CHALLENGE_BYTES), bytes(CHALLENGE_BYTES)),
        bytes(HELLO_BYTES),
        b"\xff" * 10**5,
    ]
    for _ in range(count):
        noise = dice.randbytes(dice.choice([HELLO_BYTES, HELLO_BYTES + 1, 1000]))
        yield dice.choice([noise, noise, *others])


def impostors(secret):
    """Hellos with the right secret that no worker of two, of 8-byte bodies, says."""
    return [
        (secret, Hello(2, 8, 8)),
        (secret, Hello(2**32 - 1, 8, 8)),
        (secret, Hello(0, 16, 8)),
        (secret, Hello(0, 8, 2**63)),
    ]
