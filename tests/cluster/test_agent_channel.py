"""What somebody without the key achieves beside head and agents: nothing, and no delay."""

import contextlib
import json
import os
import re
import socket
import stat
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from paceline.cluster import agent_wire, torchrun
from paceline.cluster.agent_wire import (
    HEAD,
    KEY,
    Channel,
    Ended,
    Kill,
    Order,
    Ready,
    Reported,
    agent_key,
    connect,
    run_secret,
)
from paceline.cluster.child import Alive, Raised, Returned, Tolerated
from paceline.cluster.node_agents import NodeAgents
from paceline.cluster.plain_form import _CLASSES, from_json, to_json
from paceline.cluster.supervisor import Task
from paceline.data.order import PartitionedOrder, SampleStream
from paceline.errors import SettingError
from paceline.exchange.wire.handshake import CHALLENGE_BYTES, PROOF_BYTES
from tests.tiny import REPOSITORY

AGENTS_KEY = bytes(range(32))
HELLO_BYTES = CHALLENGE_BYTES + PROOF_BYTES  # of an agent


@pytest.fixture
def head():
    agents = NodeAgents(("127.0.0.1", 0), AGENTS_KEY)
    yield agents
    agents.close()


@pytest.fixture
def pool():
    with ThreadPoolExecutor(8) as pool:
        yield pool


@contextlib.contextmanager
def answering(talk):
    """The address of a stranger that calls `talk` with each connection, in a thread."""
    with socket.create_server(("127.0.0.1", 0)) as listening, ThreadPoolExecutor(4) as pool:

        def serve():
            with contextlib.suppress(OSError):
                while True:
                    peer = listening.accept()[0]
                    peer.settimeout(5)
                    pool.submit(lambda peer=peer: _talk(talk, peer))

        thread = threading.Thread(target=serve)
        thread.start()
        yield listening.getsockname()
        listening.shutdown(socket.SHUT_RDWR)
        thread.join()


def _talk(talk, peer):
    with peer, contextlib.suppress(OSError):
        talk(peer)


def read(peer, num_bytes):
    content = b""
    while len(content) < num_bytes and (more := peer.recv(num_bytes - len(content))):
        content += more
    return content


def come(head, patience=10):
    """An agent that is there and ready."""
    channel = connect(head.address, AGENTS_KEY, patience)
    channel.send(Ready("host", "127.0.0.1"))
    return channel


def test_what_squats_between_two_agents_cannot_use_one_against_the_other(pool):
    """It lets one agent prove what the other asks for."""
    with socket.create_server(("127.0.0.1", 0)) as squatter:
        agents = [pool.submit(connect, squatter.getsockname(), AGENTS_KEY, 0) for _ in range(2)]
        (first, _), (second, _) = squatter.accept(), squatter.accept()
        with first, second:
            first.sendall(bytes(CHALLENGE_BYTES))
            challenge = read(first, HELLO_BYTES)[:CHALLENGE_BYTES]
            second.sendall(challenge)
            hello = read(second, HELLO_BYTES)
            first.sendall(hello[CHALLENGE_BYTES:])
            second.sendall(hello[CHALLENGE_BYTES:])
            for agent in agents:
                with pytest.raises(SettingError, match=r"^PACELINE_AGENT_KEY: .* is no head"):
                    agent.result()


class Relay:
    """Somebody on the way between agent and head: `seen` is all that it saw, by direction."""

    def __init__(self, head):
        self._head, self.seen = head, {"agent": b"", "head": b""}
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.address = self._listening.getsockname()
        threading.Thread(target=self._relay, daemon=True).start()

    def _relay(self):
        with self._listening:
            self.agent = self._listening.accept()[0]
        self.head = socket.create_connection(self._head)
        for sender, receiver, name in (
            (self.agent, self.head, "agent"),
            (self.head, self.agent, "head"),
        ):
            arguments = (sender, receiver, name)
            threading.Thread(target=self._pass_on, args=arguments, daemon=True).start()

    def _pass_on(self, sender, receiver, name):
        with contextlib.suppress(OSError):
            while content := sender.recv(2**16):
                self.seen[name] += content
                receiver.sendall(content)
            receiver.close()


def sealed_ends(pool):
    """Both ends of a channel over a relay, and the relay."""
    listening = socket.create_server(("127.0.0.1", 0))
    reception = agent_wire.reception(listening, AGENTS_KEY)
    relay = Relay(listening.getsockname())
    agent = pool.submit(connect, relay.address, AGENTS_KEY, 10)
    callers = []
    while not callers:
        callers += reception.greet(5)
    reception.close()
    return Channel(callers[0].connection, callers[0].seals), agent.result(), relay


TASK = Task("module:function", (1,), 1, 0, Path("log"))
ORDER = Order([0], {"NAME": "a variable"}, "number of the run", "code", to_json(TASK))


def test_nothing_can_be_read_or_added_on_the_way(pool):
    head, agent, relay = sealed_ends(pool)
    head.send(ORDER)
    assert agent.receive() == ORDER
    agent.send(Ready("host", "address"))
    assert head.receive() == Ready("host", "address")
    seen = relay.seen["agent"] + relay.seen["head"]
    for private in (b"a variable", b"number of the run", b"module:function", AGENTS_KEY):
        assert private not in seen
    said = relay.seen["agent"][HELLO_BYTES:]  # its first message once more
    relay.head.sendall(said)
    with pytest.raises(ConnectionError, match="a message was changed or added on its way"):
        head.receive()
    relay.agent.sendall((20).to_bytes(8, "little") + bytes(20))
    with pytest.raises(ConnectionError, match="a message was changed or added on its way"):
        agent.receive()
    head.close()
    agent.close()


def test_a_length_that_is_none_is_not_waited_for(pool):
    head, agent, relay = sealed_ends(pool)
    for num_bytes in (0, 15, 2**31, 2**64 - 1):
        relay.head.sendall(num_bytes.to_bytes(8, "little"))
        with pytest.raises(ConnectionError, match="it broke the protocol"):
            head.receive()
    head.close()
    agent.close()


def test_the_secret_of_a_run_does_not_travel():
    secrets = [run_secret(key, run) for key in (AGENTS_KEY, bytes(32)) for run in ("1", "2")]
    assert len({*secrets, AGENTS_KEY.hex()}) == 5
    assert {len(secret) for secret in secrets} == {64}


def test_a_slow_byte_delays_nobody(head, pool):
    """The limit is that of a whole handshake, not of a byte."""
    head._reception._patience = 0.5
    over = threading.Event()

    def drip():
        with socket.create_connection(head.address) as slow, contextlib.suppress(OSError):
            while not over.wait(0.05):
                slow.sendall(b"x")
            return "still connected"

    began, dripping = time.monotonic(), pool.submit(drip)
    with pytest.raises(SettingError, match=r"^cluster.nodes: 0 of 1 agents came"):
        head.meet(1, 1.0)
    assert time.monotonic() - began < 2
    over.set()
    assert dripping.result() is None


@pytest.mark.parametrize("count", [40, 300])
def test_the_silent_delay_no_agent(count, head, pool):
    with contextlib.ExitStack() as stack:
        for _ in range(count):
            stack.enter_context(socket.create_connection(head.address))
        agent, began = pool.submit(come, head), time.monotonic()
        head.meet(1, 10)
        assert time.monotonic() - began < 1
        assert len(head._reception._guests) <= 100
        agent.result().close()


TALKERS = {
    "ends at once": lambda peer: None,
    "a frame": lambda peer: (peer.sendall(b"\0\0\0\4{}{}"), peer.recv(99)),
    "an empty frame": lambda peer: (peer.sendall(bytes(4)), peer.recv(99)),
    "noise": lambda peer: (peer.sendall(bytes(100_000)), read(peer, HELLO_BYTES)),
    "HTTP": lambda peer: (
        peer.sendall(b"HTTP/1.1 400 Bad Request\r\n" + b" " * 80),
        peer.shutdown(socket.SHUT_WR),
        read(peer, HELLO_BYTES),
    ),
    "an echo": lambda peer: (
        peer.sendall(bytes(CHALLENGE_BYTES)),
        peer.sendall(read(peer, HELLO_BYTES)),
    ),
}


@pytest.mark.parametrize("talker", TALKERS)
def test_an_agent_that_meets_something_else_says_so_in_one_line(talker, monkeypatch):
    monkeypatch.setattr(agent_wire, "_REFUSED_SECONDS", 0)
    monkeypatch.setattr(agent_wire, "_HANDSHAKE_SECONDS", 0.3)
    with answering(TALKERS[talker]) as address, pytest.raises(SettingError) as told:
        connect(address, AGENTS_KEY, 0.1)
    assert re.fullmatch(rf"({KEY}|{HEAD}): .*127\.0\.0\.1:{address[1]}.*", str(told.value))


def test_torchrun_s_store_holds_no_secret_and_is_not_trusted(tmp_path, monkeypatch):
    """Who writes another address into it meets an agent that asks for a proof."""
    store = {}
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv(KEY, raising=False)
    monkeypatch.setenv("MASTER_ADDR", "127.0.0.1")
    monkeypatch.setattr(torchrun, "_store", lambda: Store(store))
    started = []
    monkeypatch.setattr(torchrun.subprocess, "Popen", lambda *each, **env: started.append(each))
    agents = torchrun._listening.__wrapped__()
    agents.close()
    assert store == {torchrun._HEAD: f"127.0.0.1:{agents.address[1]}"}
    assert agent_key().hex() not in str(started)
    for written in ("nowhere", "127.0.0.1:1 x", "\udcff:1"):
        store[torchrun._HEAD] = written
        with pytest.raises(SettingError, match=rf"^{HEAD}: "):
            torchrun.serve_torchrun("")
    with answering(TALKERS["noise"]) as address:
        store[torchrun._HEAD] = f"127.0.0.1:{address[1]}"
        with pytest.raises(SettingError, match=rf"^{KEY}: what answers at .* is no head"):
            torchrun.serve_torchrun("")


class Store:
    """torchrun's store, which anybody may read and write."""

    def __init__(self, content):
        self._content = content

    def set(self, name, value):
        self._content[name] = value

    def wait(self, names, limit):
        assert set(names) <= set(self._content)

    def get(self, name):
        return self._content[name].encode(errors="surrogateescape")


@pytest.mark.parametrize(
    "key",
    [
        "",
        "short",
        "put-in-the-output-of-openssl-rand-hex-32",
        "changeme" * 8,
        "0" * 64,
        "deadbeef" * 8,
        "0123456789abcdef" * 4,
        bytes([*range(15), *range(15), 0, 0]).hex(),  # half of the bytes must differ
        "00112233445566778899aabbccddee",
        "g" * 64,
    ],
)
def test_a_key_that_can_be_guessed_is_refused(key, monkeypatch):
    monkeypatch.setenv(KEY, key)
    with pytest.raises(SettingError, match=f"^{KEY}: .*openssl rand -hex 32"):
        agent_key()


def test_without_a_variable_the_key_is_a_file_that_only_this_user_can_read(
    tmp_path, monkeypatch, pool
):
    monkeypatch.delenv(KEY, raising=False)
    monkeypatch.chdir(tmp_path)
    keys = {each.result() for each in [pool.submit(agent_key) for _ in range(8)]}
    assert len(keys) == 1
    (path,) = (tmp_path / "runs").iterdir()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    monkeypatch.setenv(KEY, bytes(range(16)).hex())
    assert agent_key() == bytes(range(16))


def _readable(path):
    path.chmod(0o644)


def _foreign(path):
    os.chown(path, 65534, -1)


def _linked(path):
    path.rename(path.with_name("other"))
    path.symlink_to("other")


def _fifo(path):
    path.unlink()
    os.mkfifo(path, 0o600)


def _folder(path):
    path.unlink()
    path.mkdir(0o700)


def _empty(path):
    path.write_text("")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files to others")
@pytest.mark.parametrize("change", [_readable, _foreign, _linked, _fifo, _folder, _empty])
def test_a_key_file_that_others_can_have_written_or_read_is_refused(change, tmp_path, monkeypatch):
    monkeypatch.delenv(KEY, raising=False)
    monkeypatch.chdir(tmp_path)
    agent_key()
    change(tmp_path / "runs/.agent_key")
    with pytest.raises(SettingError, match=r"^runs/.agent_key: "):
        agent_key()


@pytest.mark.slow
@pytest.mark.skipif(os.geteuid() != 0, reason="only root becomes another user")
def test_another_user_sees_no_key_of_an_agent(tmp_path):
    """Neither in its arguments, nor in its environment or in the file."""
    (tmp_path / "conf").symlink_to(REPOSITORY / "conf")
    tmp_path.chmod(0o755)
    environment = {name: value for name, value in os.environ.items() if name != KEY}
    environment["PYTHONPATH"] = str(REPOSITORY / "src")
    command = [sys.executable, "-m", "paceline", "agent", "127.0.0.1:9", "--patience", "5"]
    agent = subprocess.Popen(command, cwd=tmp_path, env=environment, stderr=subprocess.PIPE)
    path = tmp_path / "runs/.agent_key"
    while not path.exists():
        assert agent.poll() is None
        time.sleep(0.05)
    look = f"ps -eww -o args; cat {path} /proc/{agent.pid}/environ"
    as_nobody = ["setpriv", "--reuid=65534", "--clear-groups", "sh", "-c", look]
    seen = subprocess.run(as_nobody, capture_output=True, text=True, check=False).stdout
    assert "paceline agent 127.0.0.1:9" in seen
    assert path.read_text().strip() not in seen
    agent.communicate()


TRAVELLING = [
    ORDER,
    TASK,
    Kill(3),
    Reported(1, Ended(None)),
    Reported(1, Alive(0.1)),
    Reported(1, Tolerated(frozenset({1, 2}))),
    Reported(1, Raised("größe", None, True, 1.5)),
    Reported(1, Returned([(1, float("inf")), {"a": None, 2: b"\0\xff"}, Path("x"), True, 2**70])),
]


def test_messages_arrive_as_they_were():
    for message in TRAVELLING:
        found = from_json(to_json(message))
        assert found == message
        assert type(found) is type(message)
    for array in (np.arange(6.0).reshape(2, 3)[:, ::2], np.zeros(0, np.int32), np.array([True])):
        found = from_json(to_json(array))
        assert found.dtype == array.dtype
        np.testing.assert_array_equal(found, array)


def test_an_order_of_data_arrives_as_it_was():
    labels = np.arange(24) % 3
    order = PartitionedOrder(SampleStream(24, 5), 4, 2, shuffle_every=1, labels=labels)
    batches = [(worker, n) for worker in range(4) for n in range(9)]
    found = from_json(to_json(order)).times_drawn(batches)
    np.testing.assert_array_equal(found, order.times_drawn(batches))


@pytest.mark.parametrize("value", [object(), {1, 2}, lambda: None, np.array([None]), Path])
def test_nothing_else_travels(value):
    with pytest.raises(TypeError, match="does not travel"):
        to_json([value])


@pytest.mark.parametrize(
    "plain",
    [
        {"kind": "os:system", "value": {"command": "true"}},
        {"kind": "cluster.child:call_here", "value": {"target": "os:getpid", "arguments": []}},
        {"kind": "cluster.agent_wire:Kill", "value": {"rank": 1, "more": 2}},
        {"kind": "cluster.agent_wire:Kill", "value": {}},
        {"kind": "array", "value": ["|O", [1], "AAAAAAAAAAA="]},
        {"kind": "array", "value": ["<f8", [2], "AAAAAAAAAAA="]},
        {"kind": ["list"], "value": 1},
        {"kind": "cluster.agent_wire:Kill", "value": 3},
        {"kind": "dict", "value": 3},
        {"rank": 1},
    ],
)
def test_only_listed_classes_are_built(plain):
    with pytest.raises(ValueError, match=r".+"):
        from_json(json.dumps(plain).encode())
    with pytest.raises(ValueError, match=r".+"):
        from_json(b"[" * 10**5)


def test_all_listed_classes_exist_and_only_hold_values():
    for module, names in _CLASSES.items():
        for name in names:
            found = getattr(__import__(f"paceline.{module}", fromlist=[name]), name)
            assert hasattr(found, "_fields") or hasattr(found, "__dataclass_fields__")


NETWORKED = re.compile(
    r"_object_list|all_gather_object|gather_object|multiprocessing\.connection import .*"
    r"\b(Client|Listener|answer_challenge|deliver_challenge)|pickle\.loads?\b|Connection\("
)


def test_no_pickle_is_read_from_a_network():
    """Pipes of multiprocessing join processes of one user on one machine, which started each
    other; nothing else in the source reads pickles, or makes such a connection from a socket.
    """
    source = REPOSITORY / "src/paceline"
    found = {
        f"{path.relative_to(source)}: {line.strip()}"
        for path in source.rglob("*.py")
        for line in path.read_text().splitlines()
        if NETWORKED.search(line)
    }
    own_memory = "study/compose.py: "  # of what it has just dumped
    assert {each for each in found if not each.startswith(("data/cifar.py", own_memory))} == set()
