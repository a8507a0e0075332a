"""What connects to a server without being a worker of its run."""

import random
import socket
import struct

from paceline.exchange.wire.connection import Hello

LIMIT = 5  # seconds that anybody waits for an answer
TOKEN = b"the token of this run, 32 bytes."


def call(address):
    return socket.create_connection((address.host, address.port), LIMIT)


def send_and_listen(address, content, *, half=False):
    """Everything that comes back before the server ends the connection. `half`: no more follows."""
    heard = b""
    with call(address) as caller:
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
    dice, hello_bytes = random.Random(seed), len(TOKEN + known.pack())
    others = [
        b"GET / HTTP/1.1\r\nHost: server\r\n\r\n" + b" " * hello_bytes,
        b"\x16\x03\x01\x02\x00\x01" + bytes(hello_bytes),
        struct.pack("<q", 2**62) * 40,
        TOKEN[:-1] + b"!" + known.pack(),
        known.pack() + TOKEN,
        bytes(hello_bytes),
        b"\xff" * 10**5,
    ]
    for _ in range(count):
        noise = dice.randbytes(dice.choice([hello_bytes, hello_bytes + 1, 1000]))
        yield dice.choice([noise, noise, *others])


def impostors():
    """Hellos with the right token that no worker of two, of 8-byte bodies, says."""
    return [Hello(2, 8, 8), Hello(2**32 - 1, 8, 8), Hello(0, 16, 8), Hello(0, 8, 2**63)]
