"""Messages between nodes, and between workers, on the virtual clock.

A message passes the outgoing direction of the sender's link and the incoming one of the receiver's;
messages that are under way at the same time share both fairly, but for the link's unevenness. A
single server's link is cheap to follow.
"""

import math
from collections import Counter
from typing import NamedTuple

from paceline.clock.links import Process
from paceline.clock.virtual.cores import AbstractCores
from paceline.clock.virtual.fair_flows import FairFlows
from paceline.clock.virtual.kernel import Event, Kernel, Moment
from paceline.clock.virtual.processor_sharing import ProcessorSharing
from paceline.random_bits import normal
from paceline.timing.profile import ClusterProfile


class Passage(NamedTuple):
    """Departure of a message's first byte and arrival of its last [virtual seconds]."""

    start: float
    end: float


class VirtualNetwork:
    """Network in which workers share their node's link, and servers have or share one.

    `star`: True if the only messages are those between workers and a single server. `seed`: of how
    uneven answers are.
    """

    def __init__(
        self,
        profile: ClusterProfile,
        workers: int,
        servers: int,
        *,
        kernel: Kernel,
        cores: AbstractCores,
        star: bool = False,
        seed: int = 0,
    ) -> None:
        self._seed = seed
        self._answers: Counter[int] = Counter()  # by worker
        self._link, self._node_link = profile.link, profile.node_link
        self._kernel, self._cores = kernel, cores
        num_nodes = profile.num_nodes(workers)
        self._names = [f"node {node}" for node in range(num_nodes)]
        self._node_of = [profile.node_of(worker) for worker in range(workers)]
        if profile.server_placement == "own_nodes":
            self._end_of_server = range(num_nodes, num_nodes + servers)
            self._names += [f"server {server}" for server in range(servers)]
        else:
            self._end_of_server = [server % num_nodes for server in range(servers)]
        num_ends = len(self._names)
        self._flows = FairFlows(kernel, 2 * num_ends, self._link.bandwidth)  # out, then in
        self._bytes = [0] * (2 * num_ends)
        self._in_star: list[ProcessorSharing] | None = None
        limited = math.isfinite(self._link.bandwidth)
        if star and limited and profile.server_placement == "own_nodes":
            self._in_star = [ProcessorSharing(kernel, lambda _: 1.0) for _ in ("in", "out")]

    def busy_seconds(self) -> dict[str, float]:
        """Return the seconds that each direction of each link needed for its bytes."""
        return {
            f"{name}, {direction}": self._bytes[first + end] / self._link.bandwidth
            for end, name in enumerate(self._names)
            for direction, first in (("out", 0), ("in", len(self._names)))
        }

    def push(
        self, worker: int, server: int, num_bytes: int, left: Event | None = None
    ) -> Process[Passage]:
        """Send a message from a worker to a server; `left` happens when all of it has left.

        Inside a node it stays in the worker's memory, and has left at once.
        """
        ends = self._node_of[worker], self._end_of_server[server]
        return self._pass(*ends, num_bytes, left=left)

    def inside(self, worker: int, server: int) -> bool:
        """Return True if the messages between the two stay inside a node."""
        return self._node_of[worker] == self._end_of_server[server]

    def send_part(self, worker: int, server: int, num_bytes: int) -> Process[None]:
        """Send a part of a push to another node, without its latency, and without counting it."""
        return self._flow(self._node_of[worker], self._end_of_server[server], num_bytes)

    def finish_push(
        self, worker: int, server: int, num_bytes: int, left_at: float
    ) -> Process[None]:
        """Count a push that was sent in parts, and wait for the arrival of the last of them."""
        self._count(self._node_of[worker], self._end_of_server[server], num_bytes)
        yield Moment(max(self._kernel.now, left_at + self._link.latency))

    def answer(self, server: int, worker: int, num_bytes: int) -> Process[Passage]:
        """Send a message from a server to a worker."""
        ends, weight = (self._end_of_server[server], self._node_of[worker]), 1.0
        if self._link.unevenness:
            drawn = normal(self._answers[worker], "unevenness", self._seed, worker)
            weight = math.exp(self._link.unevenness * drawn)
            self._answers[worker] += 1
        return self._pass(*ends, num_bytes, weight)

    def pass_on(self, sender: int, receiver: int, num_bytes: int) -> Process[Passage]:
        """Send a message from worker to worker."""
        return self._pass(self._node_of[sender], self._node_of[receiver], num_bytes)

    def _pass_inside(self, num_bytes: int) -> Process[Passage]:
        begun = self._kernel.now
        yield self._cores.busy(self._node_link.seconds(num_bytes))
        return Passage(begun, self._kernel.now)

    def _pass(
        self,
        sender: int,
        receiver: int,
        num_bytes: int,
        weight: float = 1.0,
        left: Event | None = None,
    ) -> Process[Passage]:
        """Send a message from end to end; inside a node it occupies no shared link."""
        left = left or Event()
        if sender == receiver:
            self._kernel.happen(left)
            return (yield from self._pass_inside(num_bytes))
        begun = self._kernel.now
        self._count(sender, receiver, num_bytes)
        yield from self._flow(sender, receiver, num_bytes, weight)
        self._kernel.happen(left)
        yield self._kernel.after(self._link.latency)
        return Passage(begun, self._kernel.now)

    def _count(self, sender: int, receiver: int, num_bytes: int) -> None:
        self._bytes[sender] += num_bytes
        self._bytes[len(self._names) + receiver] += num_bytes

    def _flow(
        self, sender: int, receiver: int, num_bytes: int, weight: float = 1.0
    ) -> Process[None]:
        """Wait until a message has left, and passed the links of both ends."""
        if self._in_star is not None:
            direction = self._in_star[sender in self._end_of_server]
            yield direction.begin(num_bytes / self._link.bandwidth, weight)
        elif math.isfinite(self._link.bandwidth):
            yield from self._flows.send(sender, len(self._names) + receiver, num_bytes, weight)
