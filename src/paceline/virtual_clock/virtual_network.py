"""Messages between nodes, and between workers, on the virtual clock.

A message holds the sender's and the receiver's direction of a link while it passes, and messages
pass one after the other, in the order in which they are sent. So do those of the parameter server
on real processes, which receives and answers one worker at a time; and it moves as many bytes per
second as fair sharing would: only who is served first differs.
"""

from typing import NamedTuple

from paceline.timing.profile import ClusterProfile, Link


class Passage(NamedTuple):
    """Times at which the first byte leaves and the last one arrives [virtual seconds]."""

    start: float
    end: float


class _Port:
    """One direction of one link; `free`: the time at which its last message has passed."""

    def __init__(self) -> None:
        self.free = 0.0


class _Ends:
    """Both directions of one node's link."""

    def __init__(self) -> None:
        self.out, self.into = _Port(), _Port()


class VirtualNetwork:
    """Workers share their node's link; each server is a node by itself."""

    def __init__(self, profile: ClusterProfile, workers: int, servers: int) -> None:
        self._link: Link = profile.link
        self._node_link: Link = profile.node_link
        nodes = [_Ends() for _ in range(profile.num_nodes(workers))]
        self._workers = [nodes[profile.node_of(worker)] for worker in range(workers)]
        self._servers = [_Ends() for _ in range(servers)]

    def push(self, now: float, worker: int, server: int, num_bytes: int) -> Passage:
        return self._pass(now, self._workers[worker].out, self._servers[server].into, num_bytes)

    def answer(self, now: float, server: int, worker: int, num_bytes: int) -> Passage:
        return self._pass(now, self._servers[server].out, self._workers[worker].into, num_bytes)

    def pass_on(self, now: float, sender: int, receiver: int, num_bytes: int) -> Passage:
        """Send from worker to worker; inside a node over links that nobody else holds."""
        if self._workers[sender] is self._workers[receiver]:
            return Passage(now, now + self._node_link.seconds(num_bytes))
        return self._pass(now, self._workers[sender].out, self._workers[receiver].into, num_bytes)

    def _pass(self, now: float, out: _Port, into: _Port, num_bytes: int) -> Passage:
        start = max(now, out.free, into.free)
        out.free = into.free = start + num_bytes / self._link.bandwidth
        return Passage(start, out.free + self._link.latency)
