"""Who gets through to a server: the workers of its run, each once; whoever else tries."""

import contextlib
import os
import random
import secrets
import socket
import struct
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import psutil
import pytest

from paceline.exchange.process_group import cluster_address, this_node
from paceline.exchange.wire.connection import Address, Hello, Listener, _reach, connect

LIMIT = 5  # seconds that anybody waits for an answer
TOKEN = b"the token of this run, 32 bytes."
WORKERS = [Hello(0, 8, 8), Hello(1, 8, 8)]


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


@contextlib.contextmanager
def meeting(patience=5.0, timeout_seconds=20):
    """A server that waits for two workers; `came`: which of them have come, over what."""
    listener = Listener(TOKEN, WORKERS, patience)
    came, connections = [], []

    def meet():
        with contextlib.suppress(TimeoutError):
            for worker, connection, shared in listener.meet(timeout_seconds):
                connections.append(connection)
                came.append((worker, shared))

    server = threading.Thread(target=meet)
    server.start()
    try:
        yield listener.address, came, server
    finally:
        for worker in WORKERS:
            with contextlib.suppress(OSError):
                connections.append(join(listener.address, worker))
        server.join(timeout_seconds)
        for connection in connections:
            connection.close()


def join(address, hello, *, token=TOKEN, node="another node"):
    return connect(token, address, hello, node=node, timeout_seconds=5).connection


def is_refused(connection):
    """Whether the server ends the connection without a word."""
    with connection:
        connection.settimeout(20)
        try:
            return connection.recv(1) == b""
        except ConnectionError:
            return True


def test_a_thousand_malformed_messages_get_nothing_and_keep_no_worker_out():
    with meeting() as (address, came, server), join(address, WORKERS[0]):
        for content in malformed(1000, seed=0, known=WORKERS[1]):
            assert send_and_listen(address, content) == b""
        assert send_and_listen(address, b"half a hello", half=True) == b""
        assert came == [(0, False)]
        with join(address, WORKERS[1]):
            server.join(30)
    assert came == [(0, False), (1, False)]


def test_who_is_silent_or_gone_delays_nobody():
    """A scan that connects and ends, and more who connect and stay than the server holds."""
    with meeting(patience=60) as (address, came, server), contextlib.ExitStack() as stack:
        for _ in range(300):
            call(address).close()
        for _ in range(150):
            stack.enter_context(socket.create_connection((address.host, address.port)))
        began = time.monotonic()
        for worker in WORKERS:
            stack.enter_context(join(address, worker))
        server.join(30)
        assert time.monotonic() - began < 30
    assert [worker for worker, _ in came] == [0, 1]


def test_a_silent_connection_is_ended_after_a_while():
    with meeting(patience=0.2) as (address, came, _):
        assert [send_and_listen(address, said) for said in (b"", b"slow")] == [b"", b""]
        assert came == []


@pytest.mark.parametrize("node", ["another node", this_node()])
def test_the_token_lets_in_expected_workers_alone(node):
    with meeting() as (address, came, _):
        assert is_refused(join(address, WORKERS[0], token=bytes(len(TOKEN)), node=node))
        for hello in (Hello(2, 8, 8), Hello(2**32 - 1, 8, 8), Hello(0, 16, 8), Hello(0, 8, 2**63)):
            assert is_refused(join(address, hello, node=node)), hello
        assert came == []


@pytest.mark.skipif(os.geteuid() != 0, reason="only root becomes another user")
def test_another_user_of_the_node_is_not_greeted():
    """Although it finds the socket's name in /proc/net/unix."""
    code = (
        "import os, socket, sys; os.setuid(65534); s = socket.socket(socket.AF_UNIX);"
        "s.connect('\\0' + sys.argv[1]); s.settimeout(1);\n"
        "try: sys.exit(len(s.recv(32)))\nexcept TimeoutError: sys.exit(7)"
    )
    with meeting() as (address, _, _):
        for code_of_user, ended in ((code, 0), (code.replace("os.setuid(65534);", ""), 7)):
            command = [sys.executable, "-S", "-c", code_of_user, address.local]
            assert subprocess.run(command, check=False).returncode == ended


def test_workers_for_whom_a_backlog_has_no_place_try_again():
    """As many on one node as a Unix socket, which says so at once, does not keep waiting."""
    address = Address("node", f"paceline-{secrets.token_hex(8)}", "", 0)
    with socket.socket(socket.AF_UNIX) as listening, ThreadPoolExecutor(8) as pool:
        listening.bind(f"\0{address.local}")
        listening.listen(1)
        coming = [pool.submit(_reach, address, True, 60) for _ in range(8)]
        taken = [listening.accept()[0] for _ in coming]
        for each in [*taken, *(one.result() for one in coming)]:
            each.close()


def test_nobody_takes_the_place_of_a_worker_and_when_all_have_come_nobody_can_connect():
    """Workers of the node share memory, and others come over TCP."""
    with meeting() as (address, came, server), join(address, WORKERS[1], node=this_node()):
        assert is_refused(join(address, WORKERS[1]))
        assert came == [(1, True)]
        with join(address, WORKERS[0]):
            server.join(30)
        assert came == [(1, True), (0, False)]
        for node in (this_node(), "another node"):
            with pytest.raises(ConnectionRefusedError):
                join(address, WORKERS[0], node=node)
    with pytest.raises(TimeoutError, match="no connection from worker 0, 1"):
        list(Listener(TOKEN, WORKERS).meet(0.1))


def test_a_local_run_listens_on_loopback_and_others_where_their_master_is_reached(monkeypatch):
    found = [each for some in psutil.net_if_addrs().values() for each in some]
    known = [each.address for each in found if each.family == socket.AF_INET]
    others = [address for address in known if not address.startswith("127.")]
    with meeting() as (address, _, _):
        assert address.host == "127.0.0.1"
        for other in others:
            with pytest.raises(OSError, match=r"refused|unreachable"):
                socket.create_connection((other, address.port), 2)
    for master in others:
        monkeypatch.setenv("MASTER_ADDR", master)
        assert cluster_address() == master
