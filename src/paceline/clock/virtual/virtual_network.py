"""Messages between nodes, and between workers, on the virtual clock.

A message passes the outgoing direction of the sender's link and the incoming direction of the
receiver's link. Messages that are under way at the same time share each direction equally, except
that answers of a server have random weights if the link's `unevenness` is not 0.
"""

import math
from collections import Counter
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from paceline.clock.virtual.kernel import Buses, Event, Kernel, Plan, Process, ProcessorSharing
from paceline.random_bits import normal
from paceline.timing.profile import ClusterProfile

Floats = NDArray[np.float64]
Places = NDArray[np.intp]

_ROUNDING = 1e-9  # of a message's bytes, and of a port's share


class FairFlows:
    """Messages under way, each through one outgoing and one incoming port.

    They share ports by weighted max-min fairness: no message can get a higher rate per weight
    unless a message whose rate per weight is not higher gets less (Bertsekas and Gallager 1992,
    Data Networks, section 6.5.2). With equal weights this is what fair queueing, and TCP flows of
    equal round-trip time, come to. `bandwidth`: rate of each port [bytes/s].
    """

    def __init__(self, kernel: Kernel, num_ports: int, bandwidth: float) -> None:
        self._kernel, self._bandwidth = kernel, bandwidth
        self._num_ports = num_ports
        # of each message: ports out and into which it passes, bytes, weight, bytes left at `_since`
        kinds = (np.intp, np.intp, np.float64, np.float64, np.float64)
        self._columns: list[NDArray[Any]] = [np.zeros(0, kind) for kind in kinds]
        self._rate = np.zeros(0)
        self._arrived: list[Event] = []
        self._begun: list[tuple[int, int, float, float, Event]] = []  # at this instant
        self._since = 0.0
        self._plan: Plan | None = None

    def send(self, out: int, into: int, num_bytes: float, weight: float = 1.0) -> Process[None]:
        """Wait until `num_bytes` have passed the ports `out` and `into`."""
        arrived = Event()
        if not self._begun:
            yield from self._kernel.start(self._begin())
        self._begun.append((out, into, num_bytes, weight, arrived))
        yield arrived

    def _begin(self) -> Process[None]:
        yield None  # all messages that begin at this instant
        begun, self._begun = self._begun, []
        *columns, arrivals = zip(*begun, strict=True)
        self._advance()
        pairs = zip(self._columns, [*columns, columns[2]], strict=True)
        self._columns = [np.concatenate(pair) for pair in pairs]
        self._arrived.extend(arrivals)
        self._share()

    def _end(self) -> None:
        """Deliver the messages whose last byte has been transferred, and divide the bandwidth of
        the ports anew among the remaining messages.
        """
        self._plan = None
        self._advance()
        _, _, sizes, _, left = self._columns
        passed = left <= _ROUNDING * sizes
        passed[np.argmin(left / self._rate)] = True  # for which this was planned
        for place in np.flatnonzero(passed):
            self._kernel.happen(self._arrived[place])
        self._columns = [column[~passed] for column in self._columns]
        self._arrived = [self._arrived[place] for place in np.flatnonzero(~passed)]
        self._share()

    def _advance(self) -> None:
        if self._arrived:
            self._columns[-1] = self._columns[-1] - self._rate * (self._kernel.now - self._since)
        self._since = self._kernel.now

    def _share(self) -> None:
        """Divide the ports' bandwidth among the messages; plan the next arrival."""
        if self._plan is not None:
            self._kernel.cancel(self._plan)
            self._plan = None
        if not self._arrived:
            return
        out, into, _, weights, left = self._columns
        self._rate = max_min_rates(out, into, self._num_ports, self._bandwidth, weights)
        seconds = max(0.0, float((left / self._rate).min()))
        self._plan = self._kernel.at(self._kernel.now + seconds, self._end)


def max_min_rates(
    out: Places, into: Places, num_ports: int, bandwidth: float, weights: Floats
) -> Floats:
    """Return the max-min fair rate of each flow [bytes/s]. `out`, `into` [flows]: its two ports;
    `weights` [flows]. A port whose share, for weight 1, is the least on the way of each of its
    flows is full; these flows get that share by their weights, and what is left of the other ports
    is shared next.
    """
    rates = np.full(len(out), bandwidth)
    if len(out) == 1:
        return rates
    free = np.full(num_ports, bandwidth)
    waiting, outs, intos, sharing = np.arange(len(out)), out, into, weights
    while True:
        through = np.bincount(outs, sharing, num_ports) + np.bincount(intos, sharing, num_ports)
        share = np.full(num_ports, np.inf)
        np.divide(free, through, out=share, where=through > 0)
        least = np.minimum(share[outs], share[intos])
        lowest = np.full(num_ports, np.inf)
        np.minimum.at(lowest, outs, least)
        np.minimum.at(lowest, intos, least)
        full = share <= lowest * (1 + _ROUNDING)
        settled = full[outs] | full[intos]
        found = (least * sharing)[settled]
        rates[waiting[settled]] = found
        if settled.all():
            return rates
        for ports in (outs, intos):
            free -= np.bincount(ports[settled], found, minlength=num_ports)
        free = np.maximum(free, 0.0)
        waiting, sharing = waiting[~settled], sharing[~settled]
        outs, intos = outs[~settled], intos[~settled]


class Passage(NamedTuple):
    """Departure of a message's first byte and arrival of its last [virtual seconds]."""

    start: float
    end: float


class VirtualNetwork:
    """Network in which workers share their node's link, and servers have or share one. `star`: True
    if the only messages are those between workers and a single server, which is cheaper to compute.
    `seed`: seed of the random weights by which simultaneous answers share a server's link.
    """

    def __init__(
        self,
        profile: ClusterProfile,
        workers: int,
        servers: int,
        *,
        kernel: Kernel,
        buses: Buses,
        star: bool = False,
        seed: int = 0,
    ) -> None:
        self._seed, self._answers = seed, Counter[int]()  # by worker
        self._link, self._node_link = profile.link, profile.node_link
        self._kernel, self._buses = kernel, buses
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
        """Send a message from a worker to a server; `left` happens when all of it has left. Inside
        a node it stays in the worker's memory, and has left at once.
        """
        return self._pass(self._node_of[worker], self._end_of_server[server], num_bytes, left=left)

    def answer(self, server: int, worker: int, num_bytes: int) -> Process[Passage]:
        """Send a message from a server to a worker."""
        weight = 1.0
        if self._link.unevenness:
            drawn = normal(self._answers[worker], "unevenness", self._seed, worker)
            weight = math.exp(self._link.unevenness * drawn)
            self._answers[worker] += 1
        return self._pass(self._end_of_server[server], self._node_of[worker], num_bytes, weight)

    def pass_on(self, sender: int, receiver: int, num_bytes: int) -> Process[Passage]:
        """Send a message from worker to worker."""
        return self._pass(self._node_of[sender], self._node_of[receiver], num_bytes)

    def _pass(
        self,
        sender: int,
        receiver: int,
        num_bytes: int,
        weight: float = 1.0,
        left: Event | None = None,
    ) -> Process[Passage]:
        """Send a message over the links of both ends; inside a node it occupies no shared link."""
        left, begun = left or Event(), self._kernel.now
        if sender == receiver:
            self._kernel.happen(left)
            yield from self._buses.carry(sender, self._node_link.seconds(num_bytes))
        else:
            self._bytes[sender] += num_bytes
            self._bytes[len(self._names) + receiver] += num_bytes
            if self._in_star is not None:
                direction = self._in_star[sender in self._end_of_server]
                yield direction.begin(num_bytes / self._link.bandwidth, weight)
            elif math.isfinite(self._link.bandwidth):
                out, into = sender, len(self._names) + receiver
                yield from self._flows.send(out, into, num_bytes, weight)
            self._kernel.happen(left)
            yield self._kernel.after(self._link.latency)
        return Passage(begun, self._kernel.now)
