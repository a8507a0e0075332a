"""Parameter servers on the virtual clock: their weights, and the pushes to them. Each push waits in
a server's queue, is applied, and is answered with weights.

On one machine messages occupy the server's process, as over loopback: it receives a push, applies
it and answers, in the order in which workers are released, before it receives the next. Between
nodes the network carries messages while the server works: a worker sends to one server after
another, each worker beginning with another one, and is answered meanwhile. What the server itself
does for a message (copies, serialisation) then occupies its process before an update, and before an
answer leaves.
"""

from collections.abc import Callable, Iterable, Sequence
from functools import partial

import torch
from torch import Tensor

from paceline.clock.run_spec import VectorSpec, server_specs
from paceline.clock.served_weights import ServedWeights
from paceline.clock.snapshot import Snapshot, join_shards
from paceline.clock.virtual.clock_parts import ClockParts
from paceline.clock.virtual.kernel import Event, Kernel, Process, SingleServer
from paceline.clock.virtual.virtual_network import Passage
from paceline.clock.virtual.virtual_worker import Buffer, VirtualWorker
from paceline.exchange.shard import turns
from paceline.scheme.counts import Counts

# Weights in the servers' answer to a push, and True if the worker may take another step.
Answer = tuple[Buffer, bool]


class VirtualServers:
    """All servers of a run, which take the pushes of all workers and answer them. `served`: the
    part of each, which has [first, last) of the weights by `bounds`.
    """

    def __init__(self, parts: ClockParts, vectors: VectorSpec, weights: Tensor) -> None:
        scheme, run, kernel, profile = parts.scheme, parts.run, parts.kernel, parts.profile
        self.weights = weights
        self.bounds = vectors.bounds(scheme.servers)
        self._workers, self._pool = parts.workers, parts.pool
        self._counts = Counts(scheme, run.num_workers)
        self._statistics_pool = parts.statistics_pool
        self._pushed: dict[int, Buffer] = {}  # statistics of each worker's last push
        self.shares_statistics = False  # with workers, which do not change theirs in place
        self._shared = Buffer(weights)  # version that answers of a single server share
        self._answers: dict[int, Buffer] = {}  # under way, by worker
        self._granted: dict[int, bool] = {}
        self.served = [
            ServedWeights(
                scheme,
                spec,
                weights[first:last],
                gradient=partial(self._gradient, first, last),
                # statistics are sent to server 0 only
                statistics=self._statistics if spec.server == 0 else lambda _: torch.empty(0),
                seconds=lambda: kernel.now,
                numbers=self._numbers,
            )
            for spec, (first, last) in zip(
                server_specs(scheme, run, vectors), self.bounds, strict=True
            )
        ]
        self._profile, self._kernel, self._cores = profile, kernel, parts.cores
        self._sizes, self._buses = parts.sizes, parts.buses
        self._network = None if profile.one_machine else parts.network
        shard_bytes = [served.weights.nbytes for served in self.served]
        self._shard_bytes = parts.sizes.shards(shard_bytes, scheme.sharding)
        self._tensors = [0] * scheme.servers
        if profile.server_tensor_seconds:
            self._tensors = parts.sizes.tensors(scheme.servers, scheme.sharding)
        self._lines = [SingleServer(kernel) for _ in self.served]
        self._answered: dict[int, list[Event]] = {}  # by worker and server
        self._group_size = scheme.group_size
        self._group = VirtualGroupLink(parts, self._push) if scheme.group_size > 1 else None

    @property
    def updates(self) -> int:
        """Number of updates of server 0's weights."""
        return self.served[0].report.updates

    @property
    def samples(self) -> int:
        """Number of samples, over all workers, whose gradients server 0 has applied."""
        return self.served[0].samples

    @property
    def diverged(self) -> bool:
        return any(each.report.diverged for each in self.served)

    @property
    def num_snapshots(self) -> int:
        return len(self.served[-1].snapshots)

    @property
    def snapshots(self) -> list[Snapshot]:
        shards = [each.snapshots for each in self.served]
        return [join_shards(list(parts)) for parts in zip(*shards, strict=True)]

    def mean(self) -> Tensor:
        """Return a copy of the weights."""
        return self.weights.clone()

    @property
    def statistics(self) -> list[Tensor]:
        """Statistics in each worker's last push; before the first push, those of worker 0."""
        pushed = self._pushed.values() or (self._workers[0].statistics,)
        return [each.vector for each in pushed]

    def begin(self, worker: VirtualWorker) -> bool:
        """Give the worker the first weights (version 0); return True if it may take a step."""
        first = self._counts.group_of(worker.index)[0]
        if worker.index == first:
            worker.versions = [0] * len(self.served)
            grants = [served.grant(worker.index) for served in self.served]
            self._granted[first] = grants[0]
        return self._granted[first]

    def _keep_statistics(self, worker: VirtualWorker, mean: Tensor | None) -> None:
        """Keep the statistics in the worker's push to server 0. `mean`: that of its group."""
        if (before := self._pushed.get(worker.index)) is not None:
            self._statistics_pool.release(before)
        own, pool = worker.statistics, self._statistics_pool
        if mean is not None:
            self._pushed[worker.index] = Buffer(mean)
        else:
            kept = pool.share(own) if self.shares_statistics else pool.copy(own.vector)
            self._pushed[worker.index] = kept

    def _arrive(self, server: int, worker: VirtualWorker) -> tuple[int, ...]:
        """Take the worker's push; return the workers that this server answers now."""
        if self._shared.holders > 1:  # copy the weights for them, before the server changes its own
            self._shared.move(self._pool.copy(self.weights).vector)
            self._pool.release(self._shared)
            self._shared = Buffer(self.weights)
        return self.served[server].arrive(worker.index, worker.versions[server])

    def _fill_answer(self, server: int, worker: VirtualWorker) -> None:
        """Put the server's present weights into the answer to the worker's push."""
        served = self.served[server]
        granted = served.grant(worker.index)
        if server == 0:
            self._granted[worker.index] = granted
        worker.versions[server] = served.report.updates
        if len(self.served) == 1:  # its weights are shared until they change
            self._release_message(worker)
            self._answers[worker.index] = self._pool.share(self._shared)
            return
        if worker.index not in self._answers:
            self._answers[worker.index] = self._pool.take()
        first, last = self.bounds[server]
        self._answers[worker.index].vector[first:last].copy_(served.weights)

    def _release_message(self, worker: VirtualWorker) -> None:
        """Release the buffer of the worker's message, which servers have answered."""
        if worker.gradient is not None and worker.message is worker.gradient.vector:
            worker.release_gradient(self._pool)
        worker.message = None

    def _statistics(self, worker: int) -> Tensor:
        return self._pushed[worker].vector

    def _numbers(self, worker: int) -> Sequence[float]:
        return self._workers[worker].take_numbers() or ()

    def _gradient(self, first: int, last: int, worker: int) -> Tensor:
        message = self._workers[worker].message
        assert message is not None
        return message[first:last]

    def busy_seconds(self) -> dict[str, float]:
        """Return the seconds in which each server worked; on one machine messages are also work."""
        return {f"server {n}": line.busy_seconds for n, line in enumerate(self._lines)}

    def push(self, worker: VirtualWorker) -> Process[Answer]:
        """Push the worker's message, by itself or with those of its group; return the answer."""
        return self._push(worker) if self._group is None else self._group.push(worker)

    def leave(self, worker: VirtualWorker) -> None:
        """Remove the worker, whose last push has been answered, from the servers."""
        for server, served in enumerate(self.served if worker.versions else []):
            self._answer_all(server, served.leave(worker.index))

    def _push(self, worker: VirtualWorker) -> Process[Answer]:
        answered = self._answered[worker.index] = [Event() for _ in self._lines]
        for server in turns(len(self._lines), worker.index // self._group_size):
            left = Event()
            self._kernel.start(self._push_to(server, worker, left))
            if self._network is not None:
                yield left
        yield from answered
        self._release_message(worker)
        return self._answers.pop(worker.index), self._granted[worker.index]

    def _push_to(self, server: int, worker: VirtualWorker, left: Event) -> Process[None]:
        """Send a push to one server, wait in its queue, and be served there. `left` happens when it
        has left for a server of another node.
        """
        size = self._shard_bytes[server]
        body = size + (self._sizes.statistics(worker) if server == 0 else 0)
        served, line = self.served[server], self._lines[server]
        worker.bytes_sent += body
        served.report.bytes_received += body
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
            seconds += self._profile.server_message_seconds(self._tensors[server], body)
        since = self._kernel.now
        yield from line.enter()
        begun = self._kernel.now
        if on_bus:
            yield from self._buses.carry(0, on_bus)
        yield self._cores.busy(seconds)
        if server == 0:
            mean = self._group.statistics(worker) if self._group else None
            self._keep_statistics(worker, mean)
        updates = served.report.updates
        answered = self._arrive(server, worker)
        updates = served.report.updates - updates
        yield self._cores.busy(updates * size / self._profile.server_bandwidth)
        _spend(server, worker, since, Passage(begun, self._kernel.now))
        self._answer_all(server, answered)
        line.leave()

    def _answer_all(self, server: int, workers: Iterable[int]) -> None:
        for each in workers:
            self._kernel.start(self._answer(server, self._workers[each]))

    def _answer(self, server: int, worker: VirtualWorker) -> Process[None]:
        """Answer a worker with the present weights, once the server has time for the message."""
        since, line, size = self._kernel.now, self._lines[server], self._shard_bytes[server]
        self._fill_answer(server, worker)
        self.served[server].report.bytes_sent += size
        worker.bytes_received += size
        seconds = 0.0
        if self._network is not None:
            seconds = self._profile.server_message_seconds(self._tensors[server], size)
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


def _spend(server: int, worker: VirtualWorker, since: float, passage: Passage) -> None:
    """Record a passage, before which the worker has waited `since` a time. The timeline shows the
    passages to and from the first server only.
    """
    if server == 0:
        worker.spend("wait", since, passage.start)
        worker.spend("communicate", *passage)


class _Group:
    """State of one group: its first worker's process, and the gradients of the push under way."""

    def __init__(self, kernel: Kernel) -> None:
        self.first = SingleServer(kernel)
        self.begin_round()

    def begin_round(self) -> None:
        self.sum: Buffer | None = None
        self.num_arrived = 0
        self.complete = Event()
        self.answered: dict[int, Event] = {}  # by worker


class VirtualGroupLink:
    """Link of all workers to the first workers of their groups, each of which pushes as one.
    `push(first)` carries the message of a first worker to the servers, and returns their answer.
    Inside a node a message occupies the group's first worker, as it does a server.
    """

    def __init__(self, parts: ClockParts, push: Callable[[VirtualWorker], Process[Answer]]) -> None:
        self._parts, self._push, self._kernel = parts, push, parts.kernel
        self._counts = Counts(parts.scheme, parts.run.num_workers)
        self._groups = {first: _Group(parts.kernel) for first in self._counts.pushing}

    def statistics(self, first: VirtualWorker) -> Tensor:
        """Return the mean of the group's statistics, valid until its push is answered."""
        return torch.stack([each.statistics.vector for each in self._members(first)]).mean(0)

    def push(self, worker: VirtualWorker) -> Process[Answer]:
        """Push the worker's gradient as a part of its group's mean."""
        first = self._members(worker)[0]
        group = self._groups[first.index]
        if worker is first:
            return self._push_mean(first, group)
        return self._push_through(first, group, worker)

    def _members(self, worker: VirtualWorker) -> list[VirtualWorker]:
        return [self._parts.workers[each] for each in self._counts.group_of(worker.index)]

    def _push_mean(self, first: VirtualWorker, group: _Group) -> Process[Answer]:
        arrived_at = self._kernel.now
        self._take(first, group)
        yield group.complete
        first.spend("wait", arrived_at, self._kernel.now)
        first.gradient, waiting = group.sum, group.answered
        assert first.gradient is not None
        first.message = first.gradient.vector.div_(self._parts.scheme.group_size)
        group.begin_round()
        weights, granted = yield from self._push(first)
        for other in self._members(first)[1:]:
            shared = self._parts.pool.share(weights), granted
            self._kernel.happen(waiting[other.index], shared)
        yield None  # the others' messages enter the queue first
        yield from group.first.enter()
        group.first.leave()
        return weights, granted

    def _push_through(
        self, first: VirtualWorker, group: _Group, worker: VirtualWorker
    ) -> Process[Answer]:
        assert worker.gradient is not None
        sizes = self._parts.sizes
        size = sizes.statistics(worker) + sizes.weights(worker.gradient.vector.nbytes)
        yield from self._send(worker, first, size, since=self._kernel.now)
        arrived_at = self._kernel.now
        answered = group.answered[worker.index] = Event()
        self._take(worker, group)
        answer: Answer = yield answered
        size = sizes.weights(answer[0].vector.nbytes)
        yield from self._send(first, worker, size, since=arrived_at)
        return answer

    def _take(self, worker: VirtualWorker, group: _Group) -> None:
        """Add the worker's gradient to the sum at the first of its group."""
        assert worker.gradient is not None
        assert worker.message is worker.gradient.vector
        worker.message = None
        group.sum = self._parts.pool.add(group.sum, worker.give_gradient())
        group.num_arrived += 1
        if group.num_arrived == self._parts.scheme.group_size:
            self._kernel.happen(group.complete)

    def _send(
        self, sender: VirtualWorker, receiver: VirtualWorker, num_bytes: int, *, since: float
    ) -> Process[None]:
        """Send a message between the first of a group and another worker, waiting `since` then."""
        first, other = sorted((sender, receiver), key=lambda worker: worker.index)
        sender.bytes_sent += num_bytes
        receiver.bytes_received += num_bytes
        profile = self._parts.profile
        if profile.node_of(first.index) == profile.node_of(other.index):
            line = self._groups[first.index].first
            yield from line.enter()
            begun = self._kernel.now
            node, seconds = profile.node_of(first.index), profile.node_link.seconds(num_bytes)
            yield from self._parts.buses.carry(node, seconds)
            line.leave()
            passage = Passage(begun, self._kernel.now)
        else:
            network = self._parts.network
            passage = yield from network.pass_on(sender.index, receiver.index, num_bytes)
        other.spend("wait", since, passage.start)
        other.spend("communicate", *passage)
