"""Link of workers that push as one, through the first of their group, on the virtual clock."""

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from paceline.clock.links import Process
from paceline.clock.virtual.buffers import Buffer
from paceline.clock.virtual.clock_parts import ClockParts
from paceline.clock.virtual.kernel import Event, Kernel, SingleServer
from paceline.clock.virtual.virtual_network import Passage
from paceline.clock.virtual.virtual_worker import VirtualWorker
from paceline.scheme.accounting import Accounting


class Answer(NamedTuple):
    """Weights in the servers' answer to a push, and True if the worker may take another step."""

    weights: Buffer
    granted: bool


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
    """Link of all workers to the first workers of their groups.

    `push(first)` carries the message of a first worker to the servers, and returns their answer.
    Inside a node a message occupies the group's first worker, as it does a server.
    """

    def __init__(self, parts: ClockParts, push: Callable[[VirtualWorker], Process[Answer]]) -> None:
        self._scheme, self._workers, self._push = parts.scheme, parts.workers, push
        self._accounting = Accounting(parts.scheme, parts.run.num_workers)
        self._profile, self._network, self._sizes = parts.profile, parts.network, parts.sizes
        self._kernel, self._cores, self._pool = parts.kernel, parts.cores, parts.pool
        self._groups = {first: _Group(parts.kernel) for first in self._accounting.pushing}

    def members(self, worker: VirtualWorker) -> list[VirtualWorker]:
        """Return the workers that push as one with this one, the first of them first."""
        return [self._workers[index] for index in self._accounting.group_of(worker.index)]

    def statistics(self, first: VirtualWorker) -> Tensor:
        """Return the mean of the group's statistics, valid until its push is answered."""
        return torch.stack([each.statistics.vector for each in self.members(first)]).mean(0)

    def push(self, worker: VirtualWorker) -> Process[Answer]:
        """Push the worker's gradient as a part of its group's mean."""
        first = self.members(worker)[0]
        group = self._groups[first.index]
        if worker is first:
            return self._push_mean(first, group)
        return self._push_through(first, group, worker)

    def _push_mean(self, first: VirtualWorker, group: _Group) -> Process[Answer]:
        arrived_at = self._kernel.now
        self._take(first, group)
        yield group.complete
        first.spend("wait", arrived_at, self._kernel.now)
        first.gradient, waiting = group.sum, group.answered
        assert first.gradient is not None
        first.message = first.gradient.vector.div_(self._scheme.group_size)
        group.begin_round()
        answer = yield from self._push(first)
        for other in self.members(first)[1:]:
            shared = Answer(self._pool.share(answer.weights), answer.granted)
            self._kernel.happen(waiting[other.index], shared)
        yield None  # the others' messages enter the queue first
        yield from group.first.enter()
        group.first.leave()
        return answer

    def _push_through(
        self, first: VirtualWorker, group: _Group, worker: VirtualWorker
    ) -> Process[Answer]:
        assert worker.gradient is not None
        size = self._sizes.statistics(worker.statistics.vector.nbytes)
        size += self._sizes.weights(worker.gradient.vector.nbytes)
        yield from self._send(worker, first, size, since=self._kernel.now)
        arrived_at = self._kernel.now
        answered = group.answered[worker.index] = Event()
        self._take(worker, group)
        answer: Answer = yield answered
        size = self._sizes.weights(answer.weights.vector.nbytes)
        yield from self._send(first, worker, size, since=arrived_at)
        return answer

    def _take(self, worker: VirtualWorker, group: _Group) -> None:
        """Add the worker's gradient to the sum at the first of its group."""
        assert worker.gradient is not None
        assert worker.message is worker.gradient.vector
        worker.message = None
        group.sum = self._pool.add(group.sum, worker.give_gradient())
        group.num_arrived += 1
        if group.num_arrived == self._scheme.group_size:
            self._kernel.happen(group.complete)

    def _send(
        self, sender: VirtualWorker, receiver: VirtualWorker, num_bytes: int, *, since: float
    ) -> Process[None]:
        """Send a message between the first of a group and another worker, waiting `since` then."""
        first, other = sorted((sender, receiver), key=lambda worker: worker.index)
        sender.bytes_sent += num_bytes
        receiver.bytes_received += num_bytes
        if self._profile.node_of(first.index) == self._profile.node_of(other.index):
            passage = yield from self._pass_inside(self._groups[first.index].first, num_bytes)
        else:
            passage = yield from self._network.pass_on(sender.index, receiver.index, num_bytes)
        other.spend("wait", since, passage.start)
        other.spend("communicate", *passage)

    def _pass_inside(self, first: SingleServer, num_bytes: int) -> Process[Passage]:
        yield from first.enter()
        begun = self._kernel.now
        yield self._cores.busy(self._profile.node_link.seconds(num_bytes))
        first.leave()
        return Passage(begun, self._kernel.now)
