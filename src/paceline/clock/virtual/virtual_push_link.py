"""Pushes on the virtual clock: they queue at each server, are served, and are answered.

On one machine messages occupy the server's process, as over loopback: it receives a push, applies
it and answers, in the order in which workers are released, before it receives the next. Between
nodes the network carries messages while the server works: a worker sends to one server after
another, each worker beginning with another one, and is answered meanwhile; or it sends parts of
pushes to all of them during backward, if the scheme has them leave so early.
"""

from collections.abc import Iterable

from paceline.clock.links import Process
from paceline.clock.virtual.clock_parts import ClockParts
from paceline.clock.virtual.kernel import Event, SingleServer
from paceline.clock.virtual.virtual_early_push import VirtualEarlyPush
from paceline.clock.virtual.virtual_group_link import Answer, VirtualGroupLink
from paceline.clock.virtual.virtual_network import Passage
from paceline.clock.virtual.virtual_servers import VirtualServers
from paceline.clock.virtual.virtual_worker import VirtualWorker
from paceline.exchange.shard import turns


class VirtualPushLink:
    """Carries pushes to `servers` and their answers back, for all workers."""

    def __init__(self, parts: ClockParts, servers: VirtualServers) -> None:
        self._servers, self._workers, self._profile = servers, parts.workers, parts.profile
        self._sizes, self._kernel, self._cores = parts.sizes, parts.kernel, parts.cores
        scheme = parts.scheme
        self._group_size = scheme.group_size
        shard_bytes = [served.weights.nbytes for served in servers.served]
        self._shard_bytes = parts.sizes.shards(shard_bytes, scheme.sharding)
        self._lines = [SingleServer(parts.kernel) for _ in servers.served]
        self._answered: dict[int, list[Event]] = {}  # by worker and server
        self._network = None if parts.profile.one_machine else parts.network
        self._early: VirtualEarlyPush | None = None
        if scheme.overlap and self._network is not None and not parts.cores.shared:
            self._early = VirtualEarlyPush(parts, servers)
        self._group: VirtualGroupLink | None = None
        if scheme.group_size > 1:
            self._group = VirtualGroupLink(parts, self._push)

    def busy_seconds(self) -> dict[str, float]:
        """Return the seconds in which each server worked; on one machine messages are also work."""
        return {f"server {n}": line.busy_seconds for n, line in enumerate(self._lines)}

    def begin(self, worker: VirtualWorker) -> Event | None:
        """Begin to send parts of a push while the worker computes, until `computed_at`.

        Returns the event at which its gradient is needed; None if pushes leave as a whole.
        """
        return None if self._early is None else self._early.begin(worker)

    def end(self) -> None:
        """Send no more parts of steps that are under way: they are abandoned."""
        if self._early is not None:
            self._early.end()

    def push(self, worker: VirtualWorker) -> Process[Answer]:
        """Push the worker's message, by itself or with those of its group; return the answer."""
        push = self._push if self._group is None else self._group.push
        return push(worker)

    def leave(self, worker: VirtualWorker) -> None:
        """Remove the worker, whose last push has been answered, from the servers."""
        for server, served in enumerate(self._servers.served if worker.versions else []):
            self._answer_all(server, served.leave(worker.index))

    def _push(self, worker: VirtualWorker) -> Process[Answer]:
        answered = self._answered[worker.index] = [Event() for _ in self._lines]
        in_turn = self._network and not self._early
        for server in turns(len(self._lines), worker.index // self._group_size):
            left = Event()
            self._kernel.start(self._push_to(server, worker, left))
            if in_turn:
                yield left
        yield from answered
        return Answer(*self._servers.collect(worker))

    def _push_to(self, server: int, worker: VirtualWorker, left: Event) -> Process[None]:
        """Send a push to one server, wait in its queue, and be served there.

        `left` happens when it has left for a server of another node, as a whole.
        """
        size = self._shard_bytes[server]
        body = size + (self._statistics_bytes(worker) if server == 0 else 0)
        worker.bytes_sent += body
        self._servers.served[server].report.bytes_received += body
        seconds = self._profile.server_seconds
        if self._network is None:
            seconds += self._profile.node_link.seconds(body)
            seconds += self._profile.push_seconds if server == 0 else 0.0
        else:
            if self._early is None:
                passage = yield from self._network.push(worker.index, server, body, left)
            else:
                passage = yield from self._early.push(worker, server, body)
            self._spend(server, worker, passage.start, passage)
        since, line = self._kernel.now, self._lines[server]
        yield from line.enter()
        begun = self._kernel.now
        yield self._cores.busy(seconds)
        if server == 0:
            self._keep_statistics(worker)
        served = self._servers.served[server]
        updates = served.report.updates
        answered = self._servers.arrive(server, worker)
        updates = served.report.updates - updates
        yield self._cores.busy(updates * size / self._profile.server_bandwidth)
        self._spend(server, worker, since, Passage(begun, self._kernel.now))
        self._answer_all(server, answered)
        line.leave()

    def _answer_all(self, server: int, workers: Iterable[int]) -> None:
        for each in workers:
            self._kernel.start(self._answer(server, self._workers[each]))

    def _answer(self, server: int, worker: VirtualWorker) -> Process[None]:
        """Answer a worker with the present weights; on one machine the answer has to queue."""
        served, since, line = self._servers.served[server], self._kernel.now, self._lines[server]
        self._servers.answer(server, worker)
        size = self._shard_bytes[server]
        served.report.bytes_sent += size
        worker.bytes_received += size
        if self._network is None:
            yield from line.enter(urgent=True)
            begun = self._kernel.now
            yield self._cores.busy(self._profile.node_link.seconds(size))
            self._spend(server, worker, since, Passage(begun, self._kernel.now))
            line.leave()
        else:
            passage = yield from self._network.answer(server, worker.index, size)
            self._spend(server, worker, since, passage)
        self._kernel.happen(self._answered[worker.index][server])

    def _spend(self, server: int, worker: VirtualWorker, since: float, passage: Passage) -> None:
        """Record a passage, before which the worker has waited `since` a time.

        The timeline shows the passages to and from the first server only.
        """
        if server == 0:
            worker.spend("wait", since, passage.start)
            worker.spend("communicate", *passage)

    def _statistics_bytes(self, worker: VirtualWorker) -> int:
        return self._sizes.statistics(worker.statistics.vector.nbytes)

    def _keep_statistics(self, worker: VirtualWorker) -> None:
        own = worker.statistics.vector
        self._servers.keep_statistics(
            worker, self._group.statistics(worker) if self._group else own
        )
