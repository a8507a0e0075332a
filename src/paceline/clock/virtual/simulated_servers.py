"""Parameter servers in a simulated run, and the pushes to them: each waits in a server's queue, is
applied, and is answered with weights.

On one machine messages occupy the server's process, as over loopback: it receives a push, applies
it and answers, in the order in which workers are released, before it receives the next. Between
nodes the network carries messages while the server works: a worker sends to one server after
another, each worker beginning with another one, and is answered meanwhile. What the server itself
does for a message (copies, serialisation) then occupies its process before an update, and before an
answer leaves.
"""

from collections.abc import Iterable, Sequence

from paceline.clock.run_spec import run_of_servers
from paceline.clock.served_pushes import ServedPushes
from paceline.clock.virtual.kernel import Event, Kernel, Operation, Process, SingleServer
from paceline.clock.virtual.simulation_parts import SimulationParts
from paceline.clock.virtual.virtual_network import Passage
from paceline.clock.virtual.virtual_worker import VirtualWorker
from paceline.exchange.shard import turns
from paceline.scheme.counts import Counts


class _Group:
    """State of one group: its first worker's process, and the gradients of the push under way."""

    def __init__(self, kernel: Kernel) -> None:
        self.first = SingleServer(kernel)
        self.begin_round()

    def begin_round(self) -> None:
        self.num_arrived = 0
        self.complete = Event()
        self.answered: dict[int, Event] = {}  # by worker


class SimulatedServers:
    """All servers of a run, which take the pushes of all workers and answer them. `pushes`: those
    to each server so far.
    """

    def __init__(self, parts: SimulationParts) -> None:
        scheme, run, profile = parts.scheme, parts.run, parts.profile
        self._kernel, self._workers = parts.kernel, parts.workers
        self._sizes = parts.sizes
        self._buses, self._cores, self._profile = parts.buses, parts.cores, profile
        self._between = parts.network
        self._network = None if profile.one_machine else parts.network
        self._counts, self._snapshots = Counts(scheme, run.num_workers), parts.snapshots
        of_servers = run_of_servers(scheme, run)
        self.pushes = [ServedPushes(scheme, of_servers, n) for n in range(scheme.servers)]
        self._lines = [SingleServer(self._kernel) for _ in self.pushes]
        self._answered: dict[int, list[Event]] = {}  # by worker and server
        self._groups = {first: _Group(self._kernel) for first in self._counts.pushing}

    def begin(self, worker: VirtualWorker) -> bool:
        """Give the worker the first weights (version 0); return True if it may take a step."""
        first = self._workers[self._counts.group_of(worker.index)[0]]
        if worker is first:
            worker.versions = [0] * len(self.pushes)
            grants = [pushes.grant(worker.index) for pushes in self.pushes]
            worker.granted = grants[0]
        return first.granted

    def busy_seconds(self) -> dict[str, float]:
        """Return the seconds in which each server worked; on one machine messages are also work."""
        return {f"server {n}": line.busy_seconds for n, line in enumerate(self._lines)}

    def push(self, worker: VirtualWorker) -> Process[None]:
        """Push the worker's message, by itself or with those of its group."""
        yield Operation("push", worker.index)
        members = [self._workers[each] for each in self._counts.group_of(worker.index)]
        if len(members) == 1:
            yield from self._push_alone(worker)
            yield Operation("answered", (worker.index,))
        elif worker is members[0]:
            yield from self._push_mean(members, self._groups[worker.index])
        else:
            yield from self._push_through(members[0], self._groups[members[0].index], worker)

    def leave(self, worker: VirtualWorker) -> Process[None]:
        """Remove the worker, whose last push has been answered, from the servers."""
        for server, pushes in enumerate(self.pushes if worker.versions else []):
            answered = pushes.leave(worker.index)
            yield Operation("update", server, pushes.update)
            self._note_snapshot(server)
            yield from self._answer_all(server, answered)

    def _push_alone(self, worker: VirtualWorker) -> Process[None]:
        """Push to all servers; return when all have answered."""
        answered = self._answered[worker.index] = [Event() for _ in self._lines]
        for server in turns(len(self._lines), worker.index // self._counts.scheme.group_size):
            left = Event()
            yield from self._kernel.start(self._push_to(server, worker, left))
            if self._network is not None:
                yield left
        yield from answered

    def _push_to(self, server: int, worker: VirtualWorker, left: Event) -> Process[None]:
        """Send a push to one server, wait in its queue, and be served there. `left` happens when it
        has left for a server of another node.
        """
        size = self._sizes.shards[server]
        body = size + (self._sizes.statistics if server == 0 else 0)
        pushes, line = self.pushes[server], self._lines[server]
        worker.bytes_sent += body
        pushes.report.bytes_received += body
        seconds, on_bus = self._profile.server_seconds, 0.0  # of the server's process, of a bus
        if self._network is None:
            if self._buses.shared:
                on_bus = self._profile.node_link.seconds(body)
            else:
                seconds += self._profile.node_link.seconds(body)
            seconds += self._profile.added_seconds("push") if server == 0 else 0.0
        else:
            passage = yield from self._network.push(worker.index, server, body, left)
            _spend(server, worker, passage.start, passage)
            seconds += self._profile.server_message_seconds(self._sizes.tensors[server], body)
        since = self._kernel.now
        yield from line.enter()
        begun = self._kernel.now
        if on_bus:
            yield from self._buses.carry(0, on_bus)
        yield self._cores.busy(seconds)
        answered = pushes.arrive(worker.index, worker.versions[server])
        yield Operation("serve", server, worker.index, pushes.update)
        self._note_snapshot(server)
        updates = 0 if pushes.update is None else 1
        yield self._cores.busy(updates * size / self._profile.server_bandwidth)
        _spend(server, worker, since, Passage(begun, self._kernel.now))
        yield from self._answer_all(server, answered)
        line.leave()

    def _note_snapshot(self, server: int) -> None:
        update = self.pushes[server].update
        if server == 0 and update is not None and update.snapshot_of is not None:
            self._snapshots.append((self.pushes[0].samples, self._kernel.now))

    def _answer_all(self, server: int, workers: Iterable[int]) -> Process[None]:
        for each in workers:
            yield from self._kernel.start(self._answer(server, self._workers[each]))

    def _answer(self, server: int, worker: VirtualWorker) -> Process[None]:
        """Answer a worker with the present weights, once the server has time for the message."""
        since, line, size = self._kernel.now, self._lines[server], self._sizes.shards[server]
        pushes = self.pushes[server]
        granted = pushes.grant(worker.index)
        if server == 0:
            worker.granted = granted
        worker.versions[server] = pushes.report.updates
        yield Operation("answer", server, worker.index)
        pushes.report.bytes_sent += size
        worker.bytes_received += size
        seconds = 0.0
        if self._network is not None:
            seconds = self._profile.server_message_seconds(self._sizes.tensors[server], size)
        if self._network is None or seconds:
            yield from line.enter(urgent=True)
            begun = self._kernel.now
            if self._network is None:
                yield from self._buses.carry(0, self._profile.node_link.seconds(size))
            else:
                yield self._cores.busy(seconds)
            line.leave()
            _spend(server, worker, since, Passage(begun, self._kernel.now))
        if self._network is not None:
            passage = yield from self._network.answer(server, worker.index, size)
            _spend(server, worker, passage.start, passage)
        self._kernel.happen(self._answered[worker.index][server])

    # groups: the first worker of each pushes as one. Inside a node a message occupies it, as it
    # does a server.

    def _push_mean(self, members: Sequence[VirtualWorker], group: _Group) -> Process[None]:
        first, arrived_at = members[0], self._kernel.now
        yield from self._take(first, group)
        yield group.complete
        first.spend("wait", arrived_at, self._kernel.now)
        yield Operation("push_mean", first.index)
        waiting = group.answered
        group.begin_round()
        yield from self._push_alone(first)
        yield Operation("answered", tuple(each.index for each in members))
        for other in members[1:]:
            self._kernel.happen(waiting[other.index], first.granted)
        yield None  # the others' messages enter the queue first
        yield from group.first.enter()
        group.first.leave()

    def _push_through(
        self, first: VirtualWorker, group: _Group, worker: VirtualWorker
    ) -> Process[None]:
        size = self._sizes.statistics + self._sizes.weights
        yield from self._send_inside(worker, first, size, since=self._kernel.now)
        arrived_at = self._kernel.now
        answered = group.answered[worker.index] = Event()
        yield from self._take(worker, group)
        granted = yield answered
        yield from self._send_inside(first, worker, self._sizes.weights, since=arrived_at)
        worker.granted = granted

    def _take(self, worker: VirtualWorker, group: _Group) -> Process[None]:
        """Add the worker's gradient to the sum at the first of its group."""
        yield Operation("gather", worker.index)
        group.num_arrived += 1
        if group.num_arrived == self._counts.scheme.group_size:
            self._kernel.happen(group.complete)

    def _send_inside(
        self, sender: VirtualWorker, receiver: VirtualWorker, num_bytes: int, *, since: float
    ) -> Process[None]:
        """Send a message between the first of a group and another worker, waiting `since` then."""
        first, other = sorted((sender, receiver), key=lambda worker: worker.index)
        sender.exchange(receiver, num_bytes)
        profile = self._profile
        if profile.node_of(first.index) == profile.node_of(other.index):
            line = self._groups[first.index].first
            yield from line.enter()
            begun = self._kernel.now
            node, seconds = profile.node_of(first.index), profile.node_link.seconds(num_bytes)
            yield from self._buses.carry(node, seconds)
            line.leave()
            passage = Passage(begun, self._kernel.now)
        else:
            passage = yield from self._between.pass_on(sender.index, receiver.index, num_bytes)
        other.spend("wait", since, passage.start)
        other.spend("communicate", *passage)


def _spend(server: int, worker: VirtualWorker, since: float, passage: Passage) -> None:
    """Record a passage, before which the worker has waited `since` a time. The timeline shows the
    passages to and from the first server only.
    """
    if server == 0:
        worker.spend("wait", since, passage.start)
        worker.spend("communicate", *passage)
