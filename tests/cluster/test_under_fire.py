"""A run on two nodes while a stranger on the same network calls at everything that listens."""

import contextlib
import os
import random
import secrets
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
import torch

from paceline.cluster.agent_wire import HEAD, KEY
from paceline.cluster.child import _enter_namespace
from paceline.cluster.namespaces import shaped_network
from paceline.cluster.node_agents import NodeAgents
from tests.tiny import REPOSITORY, run_tiny, tiny_point

CALLS_PER_SECOND, MOST_OPEN = 50, 300
AGENT = """
import sys
from paceline.cluster.node_agent import serve
if __name__ == "__main__":
    serve((sys.argv[1], int(sys.argv[2])), bytes.fromhex(sys.stdin.readline()), "", 100)
"""


class Stranger(threading.Thread):
    """Calls from `namespace` at all addresses at which the network of a process of `seen` listens.
    `calls`: how many came through.
    """

    def __init__(self, namespace, seen):
        super().__init__(daemon=True)
        self._namespace, self._seen = namespace, seen
        self._over, self._dice, self.calls = threading.Event(), random.Random(0), 0
        self.fires = threading.Event()

    def run(self):
        _enter_namespace(self._namespace)
        opened, following = [], time.monotonic()
        while not self._over.wait(max(0.0, following - time.monotonic())):
            following += 1 / CALLS_PER_SECOND
            if not self.fires.is_set():
                following = time.monotonic() + 1 / CALLS_PER_SECOND
                continue
            with contextlib.suppress(OSError):
                peer = socket.create_connection(self._dice.choice(self._listening()), 0.2)
                peer.setblocking(False)
                opened.append(peer)
                self.calls += 1
                peer.send(self._dice.choice([b"", b"x", self._noise(8), self._noise(900)]))
            if len(opened) > MOST_OPEN:
                opened.pop(self._dice.randrange(len(opened))).close()
        for peer in opened:
            peer.close()

    def stop(self):
        self._over.set()
        self.join()

    def _noise(self, num_bytes):
        """Not zeros: to gloo, which authenticates nobody, eight of them name a process."""
        return self._dice.randbytes(num_bytes)

    def _listening(self):
        found = []
        for process, address in self._seen:
            lines = Path(f"/proc/{process}/net/tcp").read_text().splitlines()[1:]
            listening = [line.split()[1].split(":") for line in lines if line.split()[3] == "0A"]
            own = socket.inet_aton(address)[::-1].hex().upper()
            found += [(address, int(port, 16)) for host, port in listening if host == own]
        return found


@pytest.fixture
def two_nodes(monkeypatch):
    """A head, agents on two nodes, and a stranger on a third."""
    key = secrets.token_bytes(32)
    with shaped_network(3, 1e9) as network:
        head = NodeAgents((network.address, 0), key)
        environment = {**os.environ, "PYTHONPATH": f"{REPOSITORY}:{REPOSITORY / 'src'}"}
        python = (sys.executable, "-c", AGENT)
        agents = [
            subprocess.Popen(
                ["ip", "netns", "exec", Path(namespace).name, *python, *map(str, head.address)],
                env=environment,
                stdin=subprocess.PIPE,
                text=True,
            )
            for namespace in network.namespaces[:2]
        ]
        for agent in agents:
            agent.stdin.write(key.hex() + "\n")
            agent.stdin.close()
        seen = [(os.getpid(), network.address)]
        prefix = network.address.rpartition(".")[0]
        seen += [(agent.pid, f"{prefix}.{node + 2}") for node, agent in enumerate(agents)]
        head.meet(2, 100)
        monkeypatch.setattr("paceline.cluster.agents._listening", lambda address, key: head)
        monkeypatch.setenv(HEAD, "127.0.0.1:1")
        monkeypatch.setenv(KEY, key.hex())
        stranger = Stranger(network.namespaces[2], seen)
        stranger.start()
        yield stranger
        stranger.stop()
        head.close()
        for agent in agents:
            agent.wait(60)


def weights_of(scheme, folder):
    """Return the weights at the end of a run on the two nodes."""
    config = tiny_point(scheme, 2, 4, "agents", cluster__nodes=2, training__epochs=60)
    return run_tiny(config, folder)[1]


@pytest.mark.slow
@pytest.mark.skipif(os.geteuid() != 0, reason="only root makes network namespaces")
@pytest.mark.parametrize("scheme", ["sync_parameter_server", "sync_allreduce", "local_sgd"])
def test_a_run_under_fire_ends_with_the_same_weights(two_nodes, tmp_path, scheme):
    """To the last bit, since these schemes do not depend on time."""
    expected = weights_of(scheme, tmp_path / "alone")
    two_nodes.fires.set()
    weights = weights_of(scheme, tmp_path / "under fire")
    assert all(torch.equal(weights[name], expected[name]) for name in expected)
    assert two_nodes.calls > CALLS_PER_SECOND
