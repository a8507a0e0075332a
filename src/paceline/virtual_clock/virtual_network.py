"""Messages between nodes, and between workers, on the virtual clock.

A message occupies the sender's outgoing and the receiver's incoming direction of a link, and
messages pass one after another, in the order in which they are sent. This is also so for a
parameter server on real processes, which serves one worker at a time. It moves as many bytes per
second as fair sharing would; only the order of service differs.
"""

from typing import NamedTuple

from paceline.timing.profile import ClusterProfile, Link


class Passage(NamedTuple):
    """Departure of a message's first byte and arrival of its last [virtual seconds]."""

    start: float
    end: float


class _Port:
    """One direction of one link.

    `free`: time at which its last message has passed; `busy`: seconds in which messages passed.
    """

    def __init__(self) -> None:
        self.free = self.busy = 0.0


class _Ends:
    """Both directions of one node's link."""

    def __init__(self) -> None:
        self.out, self.into = _Port(), _Port()


class VirtualNetwork:
    """Network in which workers share their node's link, and each server is a node by itself."""

    def __init__(self, profile: ClusterProfile, workers: int, servers: int) -> None:
        self._link: Link = profile.link
        self._node_link: Link = profile.node_link
        self._nodes = [_Ends() for _ in range(profile.num_nodes(workers))]
        self._workers = [self._nodes[profile.node_of(worker)] for worker in range(workers)]
        self._servers = [_Ends() for _ in range(servers)]

    def busy_seconds(self) -> dict[str, float]:
        """Return the seconds in which messages passed each direction of each link between nodes."""
        ends = {f"node {node}": each for node, each in enumerate(self._nodes)}
        ends |= {f"server {server}": each for server, each in enumerate(self._servers)}
        return {
            f"{name}, {direction}": port.busy
            for name, each in ends.items()
            for direction, port in (("out", each.out), ("in", each.into))
        }

    def push(self, now: float, worker: int, server: int, num_bytes: int) -> Passage:
        return self._pass(now, self._workers[worker].out, self._servers[server].into, num_bytes)

    def answer(self, now: float, server: int, worker: int, num_bytes: int) -> Passage:
        return self._pass(now, self._servers[server].out, self._workers[worker].into, num_bytes)

    def pass_on(self, now: float, sender: int, receiver: int, num_bytes: int) -> Passage:
        """Send a message from worker to worker; inside a node it occupies no shared link."""
        if self._workers[sender] is self._workers[receiver]:
            return Passage(now, now + self._node_link.seconds(num_bytes))
        return self._pass(now, self._workers[sender].out, self._workers[receiver].into, num_bytes)

    def _pass(self, now: float, out: _Port, into: _Port, num_bytes: int) -> Passage:
        start = max(now, out.free, into.free)
        seconds = num_bytes / self._link.bandwidth
        out.free = into.free = start + seconds
        out.busy += seconds
        into.busy += seconds
        return Passage(start, out.free + self._link.latency)
